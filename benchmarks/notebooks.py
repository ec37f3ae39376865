"""``python -m benchmarks.notebooks FOLDER``: real notebooks through ``check`` and ``--fix --unsafe-fixes``.

Takes every ``.ipynb`` below FOLDER that mentions torch, works on copies, and prints

- how many could be checked, what was found, and any failure of ours (TML001);
- how many the fixes changed, and that each of those is as valid as it was (``nbformat``), and the same byte for byte except in
  the ``source`` of cells whose code changed.

The comparison knows nothing of ``torchmemlint.source.notebook``: it walks both texts from one ``"source":`` to the next.
The notebooks are not part of this repository; packages on PyPI and course repositories have them.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

_SOURCE = re.compile(r'"source"\s*:\s*')


def main(folder: Path) -> int:
    found = [path for path in sorted(folder.rglob("*.ipynb")) if path.is_file() and b"torch" in path.read_bytes()]
    with tempfile.TemporaryDirectory() as place:
        copies = Path(place)
        (copies / "pyproject.toml").write_text("[tool.torchmemlint]\n")
        for path in found:
            data = path.read_bytes()
            (copies / f"{hashlib.sha256(data).hexdigest()[:12]}-{path.name}").write_bytes(data)
        before = {path: path.read_bytes() for path in sorted(copies.glob("*.ipynb"))}
        print(f"{len(found)} notebooks with torch, {len(before)} of them different")
        started = _children()
        checked = lint(copies, "--output-format", "json")
        codes = Counter(finding["code"] for finding in json.loads(checked.stdout))
        seconds = _children() - started
        print(f"checked in {seconds:.1f} s of CPU: {', '.join(f'{code} {n}' for code, n in sorted(codes.items()))}")
        print("".join(f"  {line}\n" for line in checked.stderr.splitlines()[:20]), end="")
        fixed = lint(copies, "--fix", "--unsafe-fixes", "--output-format", "concise")
        print(next((line for line in fixed.stdout.splitlines() if line.startswith("Fixed ")), "Fixed none."))
        changed = [path for path, data in before.items() if path.read_bytes() != data]
        wrong = [f"{path.name}: {fault}" for path in changed for fault in faults(before[path], path.read_bytes())]
        print(f"{len(changed)} notebooks changed, {len(wrong)} of them wrongly")
        print("".join(f"  {line}\n" for line in wrong), end="")
        return 1 if wrong or codes["TML001"] or checked.returncode > 1 or fixed.returncode > 1 else 0


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchmemlint", *options, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)


def faults(before: bytes, after: bytes) -> Iterator[str]:
    """What a fix must not have done to a notebook."""
    import nbformat.validator

    warnings.simplefilter("ignore")
    old, new = json.loads(before), json.loads(after)
    valid: Callable[[object], bool] = nbformat.validator.isvalid
    if valid(old) and not valid(new):
        yield "is not valid any more"
    pieces = zip(_pieces(before.decode()), _pieces(after.decode()), strict=False)
    if any(mine != theirs for mine, theirs in pieces) or _count(before) != _count(after):
        yield "differs outside of `source`"
    for one, two in zip(old["cells"], new["cells"], strict=True):
        if type(one["source"]) is not type(two["source"]):
            yield "has a list where text was, or the other way round"
        if one["source"] != two["source"] and one["cell_type"] != "code":
            yield "has other text"


def _pieces(text: str) -> Iterator[str]:
    """The file's text without the values of ``source``."""
    decoder = json.JSONDecoder()
    done = 0
    while (match := _SOURCE.search(text, done)) is not None:
        yield text[done : match.end()]
        _, done = decoder.raw_decode(text, match.end())
    yield text[done:]


def _count(data: bytes) -> int:
    return sum(1 for _ in _pieces(data.decode()))


def _children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(main(Path(sys.argv[1])))
