"""How a child's answers come to its parent, told from those that the code made up.

Stdlib only: both sides import it.

Stdlib only: both sides import it.

The code that is measured runs in the process that measures it, so nothing there is out of its reach for good. What is done:

- each answer has a number and a keyed digest. The key comes with the job and stands, as the descriptor does, in no frame and no
  attribute: what is written to the pipe by anybody else is known;
- an answer is given only where no frame but the experiment's own is on the stack, and says so otherwise;
- the experiment's functions are compared with those before the code ran;
- the parent takes no variant twice, wants a last word, and compares the bytes that are reported as held with what the kernel says (``launch``).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType

Emit = Callable[[Mapping[str, object]], None]
_DIGEST_BYTES = 16
END = "end"
FORGED = "forged"
OUR_CODE = ("torchmemlint.confirm.", "torchmemlint.budget.")
_BOOT = "<string>"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a child reported: its ``records``; ``forged``, why they cannot be believed, "" where they can; ``finished``: whether it
    came to its last word."""

    records: tuple[Mapping[str, object], ...]
    forged: str
    finished: bool


def new_key() -> str:
    """A secret between a parent and one child."""
    return os.urandom(32).hex()


# --- the child's side


def sender(descriptor: int, key: str) -> tuple[Emit, Callable[[], None]]:
    """What sends an answer, and what is called once before code of others runs: from then on answers are for the experiment's own
    code alone."""
    secret, write = bytes.fromhex(key), os.write
    number = owner = 0
    codes: dict[int, CodeType] = {}
    functions: Mapping[str, object] = {}

    def emit(record: Mapping[str, object]) -> None:
        nonlocal number, owner
        owner = owner or os.getpid()  # the first answer comes from behind the sandbox
        if os.getpid() != owner:  # a copy of this process, made by the code
            return
        if functions:
            reason = _stranger(sys._getframe(1), codes) or _replaced(functions)
            record = {**record, FORGED: reason} if reason else record
        data = json.dumps(record).encode()
        number += 1
        line = _digest(secret, number, data) + b" " + data + b"\n"
        while line:
            line = line[write(descriptor, line) :]

    def guard() -> None:
        nonlocal functions
        if not functions:
            functions = _functions()
            for function in functions.values():
                _collect(getattr(function, "__code__", None), codes)
            boot = sys._getframe()
            while boot.f_back is not None:
                boot = boot.f_back
            if boot.f_code.co_filename == _BOOT:
                codes[id(boot.f_code)] = boot.f_code

    return emit, guard


def _digest(secret: bytes, number: int, data: bytes) -> bytes:
    return hashlib.blake2b(b"%d %b" % (number, data), key=secret, digest_size=_DIGEST_BYTES).hexdigest().encode()


def _functions() -> dict[str, object]:
    """Every function and method of the modules of ``confirm`` and ``budget`` that are loaded, by name."""
    found: dict[str, object] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(OUR_CODE):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, FunctionType):
                found[f"{name}.{key}"] = value
            elif isinstance(value, type) and value.__module__ == name:
                for method, inner in list(vars(value).items()):
                    inner = getattr(inner, "__func__", getattr(inner, "fget", inner))
                    if isinstance(inner, FunctionType):
                        found[f"{name}.{key}.{method}"] = inner
    return found


def _collect(code: object, codes: dict[int, CodeType]) -> None:
    if isinstance(code, CodeType) and id(code) not in codes:
        codes[id(code)] = code
        for constant in code.co_consts:
            _collect(constant, codes)


def _stranger(frame: FrameType | None, codes: Mapping[int, CodeType]) -> str:
    while frame is not None:
        if id(frame.f_code) not in codes:
            return "the code that ran gave an answer itself"
        frame = frame.f_back
    return ""


def _replaced(functions: Mapping[str, object]) -> str:
    now = _functions()
    for name, function in functions.items():
        if now.get(name) is not function:
            return f"the code that ran replaced {name}"
    return ""


# --- the parent's side


def hear(data: bytes, key: str) -> Answers:
    """The answers in what came through the pipe."""
    secret = bytes.fromhex(key)
    records: list[Mapping[str, object]] = []
    variants: set[object] = set()
    forged, finished = "", False
    for line in data.split(b"\n")[:-1]:  # the last one is empty, or cut off by a crash
        given, _, text = line.partition(b" ")
        record = _record(text) if given == _digest(secret, len(records) + 1, text) else None
        if record is None or finished:
            forged = forged or "something other than the experiment's answers was written"
            continue
        forged = forged or str(record.get(FORGED, ""))
        variant = record.get("variant")
        if variant is not None and str(variant) in variants:
            forged = forged or f"there are two answers for {str(variant)[:40]!r}"
        variants.add(str(variant))
        finished = END in record
        records.append(record)
    return Answers(tuple(records), forged, finished)


def _record(text: bytes) -> Mapping[str, object] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
