"""Started by path, so that any Python that has torch can do it: puts torchmemlint last in the path, and runs the program."""

import json
import sys

if __name__ == "__main__":
    sys.path.append(json.loads(sys.argv[1])["root"])
    from torchmemlint.growth.worker.main import main

    main(sys.argv[1:])
