"""Text of expressions as facts have it (``index.facts``): names, attributes, calls, literals, tests and annotations."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache

from torchmemlint.torch_facts import TORCH

_DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")

_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not"}

# `x = x.to(device)` and `x = nn.DataParallel(x)` leave x what it was, as far as facts go.
_SAME_WRAPPERS = TORCH.words["parallel"] | TORCH.words["hands-module-on"]


def dotted(node: ast.expr) -> str:
    """Dotted text of an expression, "" where it has none; nothing is recorded."""
    kind = type(node)
    if kind is ast.Name:
        return node.id  # type: ignore[attr-defined, no-any-return]
    if kind is ast.Attribute:
        return f"{dotted(node.value) or '?'}.{node.attr}"  # type: ignore[attr-defined]
    if kind is ast.Call:
        inner = dotted(node.func)  # type: ignore[attr-defined]
        return f"{inner}()" if inner else ""
    if kind is ast.Subscript:
        inner = dotted(node.value)  # type: ignore[attr-defined]
        return f"{inner}[]" if inner else ""
    if kind is ast.Await:
        return dotted(node.value)  # type: ignore[attr-defined]
    return ""


ELLIPSIS = "..."
"""Not its ``repr``, which is no literal: what cannot be evaluated would count as None."""


def literal(node: ast.expr) -> str:
    """A constant (also a negative number) as ``ast.literal_eval`` reads it, "" for anything else and for long strings."""
    if isinstance(node, ast.Constant):
        value = node.value
        if value is ...:
            return ELLIPSIS
        return "" if isinstance(value, str | bytes) and len(value) > 80 else repr(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return f"-{node.operand.value!r}"
    return ""


def list_text(node: ast.List) -> str:
    """Text of a list of names, attributes and calls without their arguments: ``[image, net.head()]``; "" where anything else is in
    it."""
    texts = [dotted(element) for element in node.elts]
    return f"[{', '.join(texts)}]" if all(texts) else ""


def test_text(node: ast.expr) -> str:
    """Text of a test that is a name, attribute or call without arguments, ``not`` of one, or one compared with a literal."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = test_text(node.operand)
        return f"not {inner}" if inner else ""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right, sign = dotted(node.left), literal(node.comparators[0]), _COMPARISONS.get(type(node.ops[0]))
        return f"{left} {sign} {right}" if left and right and sign else ""
    return dotted(node)


def branch_text(node: ast.expr) -> str:
    """Text of a test as it stands in ``CallFact.branch``: as ``test_text``, or a name or attribute compared with another."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.comparators[0], ast.Name | ast.Attribute):
        left, right, sign = dotted(node.left), dotted(node.comparators[0]), _COMPARISONS.get(type(node.ops[0]))
        return f"{left} {sign} {right}" if left and right and sign else ""
    return test_text(node)


SEQUENCES = frozenset({"list", "List", "Sequence", "Iterable", "Collection", "tuple", "Tuple", "set", "Set"})
MAPPINGS = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})
"""Annotations of containers, by their last names (docs.python.org/3/library/typing.html)."""


def annotation_text(node: ast.expr | None) -> str:
    """Dotted text of the class that an annotation names: X of ``"X"``, ``X | None``, ``Annotated[X, …]`` …; ``Callable`` of
    ``Callable[…, X]`` where X is no tensor; ``X[]`` of ``list[X]``, ``X{}`` of ``dict[str, X]``."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, str):
            return ""
        return _annotation_in(node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        return dotted(node)
    options: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        options = [node.left, node.right]
    elif isinstance(node, ast.Subscript):
        name = dotted(node.value).rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in ("Optional", "Union"):
            options = list(inner)
        elif name in ("Annotated", "Final", "ClassVar", "Required", "NotRequired"):
            options = list(inner[:1])
        elif name == "Callable" and inner and annotation_text(inner[-1]).rpartition(".")[2] != "Tensor":
            return dotted(node.value)  # what returns a tensor may be a network
        else:
            return _held(name, inner)
    found = [option for option in options if not (isinstance(option, ast.Constant) and option.value is None)]
    return annotation_text(found[0]) if len(found) == 1 else ""


def _held(name: str, inner: Sequence[ast.expr]) -> str:
    """The text of a container's annotation, by its name and what stands in its brackets; "" where its elements are of several kinds."""
    of_one = len(inner) == 1 or (len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is ...)
    if name in SEQUENCES and of_one:
        text, brackets = annotation_text(inner[0]), "[]"
    elif name in MAPPINGS and len(inner) == 2:
        text, brackets = annotation_text(inner[1]), "{}"
    else:
        return ""
    return f"{text}{brackets}" if text and text[-1] not in "]}" else ""


@lru_cache(maxsize=1000)
def _annotation_in(text: str) -> str:
    """``annotation_text`` of an annotation that is written as a string."""
    if _DOTTED.match(text):
        return text
    try:
        return annotation_text(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def name_pattern(node: ast.expr) -> str:
    """A name that is put together (``f"get_{kind}_feature"``, ``"get_" + kind``, ``"layer{}".format(at)``) with ``*`` for what is not
    known; "*" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(name_pattern(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return name_pattern(node.left) + name_pattern(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return _CONVERSIONS.sub("*", name_pattern(node.left))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _FIELDS.sub("*", name_pattern(node.func.value))
    return "*"


_CONVERSIONS, _FIELDS = re.compile(r"%[^a-zA-Z]*[a-zA-Z]"), re.compile(r"\{[^{}]*\}")


def alternative(value: ast.BoolOp | ast.IfExp) -> str:
    """Text of the one operand that has any: ``Net() if x else None``, ``given or Net()``."""
    options = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.values
    texts = {text for text in map(dotted, options) if text}
    calls = {text for text in texts if text.endswith("()")}
    chosen = calls or texts
    return chosen.pop() if len(chosen) == 1 else ""


def name_beside_call(value: ast.BoolOp | ast.IfExp) -> str:
    """Text of the name or attribute that is taken where the one call is not: ``given or self.made()``."""
    options = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.values
    texts = [dotted(option) for option in options]
    names = [text for text in texts if text and not text.endswith(("()", "[]"))]
    return names[0] if len(texts) == 2 and len(names) == 1 and any(text.endswith("()") for text in texts) else ""


def element_text(value: ast.expr | None) -> str:
    """Text of what a container display, or a ``ModuleList`` of one, holds, when all of it has the same text; of what a dict is made
    of by a call."""
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in _DICTS:
        return _text_in_dict(value)
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return dotted(value.elt)
    if isinstance(value, ast.DictComp):
        return dotted(value.value)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        texts = {dotted(element) for element in value.elts}
        return texts.pop() if len(texts) == 1 else ""
    if isinstance(value, ast.Dict):
        texts = {dotted(element) for element in value.values}
        return texts.pop() if len(texts) == 1 else ""
    return ""


def _text_in_dict(call: ast.Call) -> str:
    """Text of what is held by ``defaultdict(Meter)``, ``dict(loss=Meter())`` and ``OrderedDict((name, Meter()) for name in names)``."""
    made = call.args[0] if call.args else None
    if isinstance(made, ast.Lambda):
        return dotted(made.body)
    if isinstance(made, ast.Name | ast.Attribute) and not call.keywords:
        return f"{dotted(made)}()" if dotted(call.func).rpartition(".")[2] in _MAKES_VALUES else ""
    pairs = made.elts if isinstance(made, ast.List | ast.Tuple) else [made.elt] if isinstance(made, _COMPREHENSIONS) else []
    values = [pair.elts[1] if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 else pair for pair in pairs]
    texts = {dotted(each) for each in (*values, *(keyword.value for keyword in call.keywords))}
    if made is not None and not values:
        texts.add(element_text(made))
    return texts.pop() if len(texts) == 1 else ""


_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)
_DICTS = frozenset(name.rpartition(".")[2] for name in TORCH.words["makes-dicts"])
_MAKES_VALUES = frozenset(name.rpartition(".")[2] for name in TORCH.words["makes-missing-values"])


def base_text(node: ast.expr) -> str:
    """A base class's text; of ``Generic[T]`` the part before the bracket."""
    return dotted(node.value if isinstance(node, ast.Subscript) else node)


def is_same(name: str, value: ast.expr) -> bool:
    """Whether ``name = value`` leaves what ``name`` is: moved, wrapped, or set to evaluate."""
    if not isinstance(value, ast.Call):
        return False
    func = value.func
    if isinstance(func, ast.Attribute) and func.attr in TORCH.words["gives-itself"] and dotted(func.value) == name:
        return True
    last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return last in _SAME_WRAPPERS and bool(value.args) and dotted(value.args[0]) == name
