"""Becomes the user's program in any Python that has torch, with torchmemlint last in the path: started by path."""

import json
import sys

if __name__ == "__main__":
    sys.path.append(json.loads(sys.argv[1])["root"])
    from torchmemlint.growth.worker.main import main

    main(sys.argv[1:])
