"""Python source → the facts of its module, by one walk over the standard library's syntax tree.

This runs on every file that mentions torch, so it is written for speed (together with ``ast.parse`` about 10 µs of CPU per
line): one recursive function visits expressions, returns their dotted text on the way up and notes calls, words and reads;
statements are dispatched by type. The tree is thrown away at the end.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from torchmemlint.errors import SourceError
from torchmemlint.index.facts import (
    ArgFact,
    AttrFact,
    CallableUse,
    CallFact,
    ClassFacts,
    FunctionFacts,
    ModuleFacts,
    ParamFact,
)
from torchmemlint.index.shared import same

MAX_DEPTH = 200
"""Deeper trees are refused: they are generated code, and deep recursion over them ends the process."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_USE = CallableUse("", (), False)

_ATTRIBUTE = re.compile(r"[A-Za-z]\w*(\.\w+)+")

# Calls of these say nothing about the project (a function that is passed to one of them is noted as read).
_PLAIN_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_")) - {
    "getattr", "setattr", "map", "filter", "type",
}  # fmt: skip

# `x = x.to(device)` and `x = nn.DataParallel(x)` leave x what it was, as far as facts go.
_SAME_METHODS = frozenset(
    {"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16", "requires_grad_", "share_memory", "to_empty"}
)
_SAME_WRAPPERS = frozenset(
    {"DataParallel", "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "compile", "prepare"}
)

_DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")

_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not"}


def module_facts(path: str, text: str) -> ModuleFacts:
    """The facts of the module at ``path`` whose source is ``text``.

    Raises SourceError where the text does not parse on this Python, or nests deeper than ``MAX_DEPTH``.
    """
    return tree_facts(path, parse(text), text)


def parse(text: str) -> ast.Module:
    """``ast.parse`` with every failure as a SourceError that says where."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(_syntax_message(error, text), error.lineno or 1, max(error.offset or 1, 1)) from None
    except ValueError as error:
        raise SourceError(f"cannot be parsed: {error}") from None
    except (RecursionError, MemoryError):
        raise SourceError("is nested too deeply to be parsed") from None


def tree_facts(path: str, tree: ast.Module, text: str) -> ModuleFacts:
    """As ``module_facts``, for a tree that is already there."""
    walk = _Walk(tree, text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    try:
        walk.module(tree)
    except RecursionError:
        raise SourceError(f"is nested more than {MAX_DEPTH} levels deep") from None
    return walk.facts(path)


# Syntax that a newer Python brought: what CPython's message or the source line looks like on an older one.
_NEWER_SYNTAX: tuple[tuple[tuple[int, int], str], ...] = (
    ((3, 14), r"""(?<![\w'"])t['"]"""),
    ((3, 14), r"^\s*except\s+[\w.]+\s*,\s*[\w.]+[\w.,\s]*:"),
    ((3, 13), r"^\s*(?:class|def|async\s+def|type)\s+\w+\[[^\]]*="),
    ((3, 12), r"^\s*(?:class|def|async\s+def)\s+\w+\[|^\s*type\s+\w+(?:\[.*\])?\s*="),
    ((3, 12), r"""[fF]["'].*\{.*["']"""),
    ((3, 11), r"^\s*except\s*\*|\[\s*\*\w+\s*\]|:\s*\*\w+"),
)


def _syntax_message(error: SyntaxError, text: str) -> str:
    message = error.msg or "invalid syntax"
    lines = text.splitlines()
    row = error.lineno or 1
    line = error.text or (lines[row - 1] if 0 < row <= len(lines) else "")
    for version, pattern in _NEWER_SYNTAX:
        if sys.version_info[:2] < version and re.search(pattern, line):
            wanted, running = ".".join(map(str, version)), ".".join(map(str, sys.version_info[:2]))
            return f"{message} (this syntax needs Python {wanted}; torchmemlint runs on Python {running})"
    return message


# --- text of expressions ----------------------------------------------------------------------------------------------


def _dotted(node: ast.expr) -> str:
    """Dotted text of an expression, "" where it has none; nothing is recorded."""
    kind = type(node)
    if kind is ast.Name:
        return node.id  # type: ignore[attr-defined, no-any-return]
    if kind is ast.Attribute:
        return f"{_dotted(node.value) or '?'}.{node.attr}"  # type: ignore[attr-defined]
    if kind is ast.Call:
        inner = _dotted(node.func)  # type: ignore[attr-defined]
        return f"{inner}()" if inner else ""
    if kind is ast.Subscript:
        inner = _dotted(node.value)  # type: ignore[attr-defined]
        return f"{inner}[]" if inner else ""
    if kind is ast.Await:
        return _dotted(node.value)  # type: ignore[attr-defined]
    return ""


def _literal(node: ast.expr) -> str:
    """``repr`` of a constant (also a negative number), "" for anything else and for long strings."""
    if isinstance(node, ast.Constant):
        value = node.value
        return "" if isinstance(value, str | bytes) and len(value) > 80 else repr(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return f"-{node.operand.value!r}"
    return ""


def _test(node: ast.expr) -> str:
    """Text of a test that is a name, attribute or call without arguments, ``not`` of one, or one compared with a literal."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _test(node.operand)
        return f"not {inner}" if inner else ""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right, sign = _dotted(node.left), _literal(node.comparators[0]), _COMPARISONS.get(type(node.ops[0]))
        return f"{left} {sign} {right}" if left and right and sign else ""
    return _dotted(node)


def _branch(node: ast.expr) -> str:
    """Text of a test as it stands in ``CallFact.branch``: as ``_test``, or a name or attribute compared with another."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.comparators[0], ast.Name | ast.Attribute):
        left, right, sign = _dotted(node.left), _dotted(node.comparators[0]), _COMPARISONS.get(type(node.ops[0]))
        return f"{left} {sign} {right}" if left and right and sign else ""
    return _test(node)


def _annotation(node: ast.expr | None) -> str:
    """Dotted text of the class that an annotation names: X of ``"X"``, ``X | None``, ``Annotated[X, …]`` …; ``Callable`` of
    ``Callable[…, X]`` where X is no tensor."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, str):
            return ""
        return _annotation_in(node.value)
    if isinstance(node, ast.Name | ast.Attribute):
        return _dotted(node)
    options: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        options = [node.left, node.right]
    elif isinstance(node, ast.Subscript):
        name = _dotted(node.value).rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in ("Optional", "Union"):
            options = list(inner)
        elif name in ("Annotated", "Final", "ClassVar", "Required", "NotRequired"):
            options = list(inner[:1])
        elif name == "Callable" and _annotation(inner[-1]).rpartition(".")[2] != "Tensor":
            return _dotted(node.value)  # what returns a tensor may be a network
    found = [option for option in options if not (isinstance(option, ast.Constant) and option.value is None)]
    return _annotation(found[0]) if len(found) == 1 else ""


@lru_cache(maxsize=1000)
def _annotation_in(text: str) -> str:
    """``_annotation`` of an annotation that is written as a string."""
    if _DOTTED.match(text):
        return text
    try:
        return _annotation(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


# --- the walk ---------------------------------------------------------------------------------------------------------


class _Frame:
    """A function while it is being read."""

    __slots__ = (
        "bound", "calls", "calls_at", "deferred", "generator", "globals", "loads", "locals", "names", "owner", "qualname",
        "receiver", "returned", "row", "wraps", "yields",
    )  # fmt: skip

    def __init__(self, qualname: str, owner: str, receiver: str, row: int) -> None:
        self.qualname = qualname
        self.row = row
        self.owner = owner  # class whose attributes `receiver` has
        self.receiver = receiver  # name of the first parameter of the method around, "" outside methods
        self.names: set[str] = set()
        self.loads: set[str] = set()
        self.locals: set[str] = set()
        self.globals: set[str] = set()
        self.bound: dict[str, list[str]] = {}
        self.calls: list[CallFact] = []
        self.calls_at: list[int] = []
        self.returned: list[CallableUse] = []
        self.wraps: list[CallableUse] = []
        self.yields: list[tuple[CallableUse, ...]] = []
        self.generator = False
        self.deferred = 0

    def bind(self, name: str, text: str) -> None:
        """``name`` is assigned ``text`` ("" for what has no text)."""
        self.locals.add(name)
        values = self.bound.setdefault(name, [])
        if text not in values:
            values.append(text)

    def known(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The names with one known value, and those with a few; what any other name stands for counts as read.

        (What a known name stands for is no read, because calls through the name are followed.)
        """
        once: list[tuple[str, str]] = []
        several: list[tuple[str, str]] = []
        for name, values in self.bound.items():
            if name in self.globals or "" in values or len(values) > 4:
                self.loads.update(text for text in values if text and text[-1] not in ")]")
            elif len(values) == 1:
                once.append((name, values[0]))
            else:
                several += [(name, text) for text in values]
        return tuple(once), tuple(several)


class _Class:
    """A class while it is being read."""

    __slots__ = ("attrs", "methods", "qualname")

    def __init__(self, qualname: str) -> None:
        self.qualname = qualname
        self.methods: dict[str, str] = {}
        self.attrs: list[AttrFact] = []


class _Walk:
    """The state of one walk: where it is, and what it has found."""

    def __init__(self, tree: ast.Module, lines: Sequence[str]) -> None:
        self.lines = lines
        self.imports: dict[tuple[str, str], None] = {}
        self.functions: list[FunctionFacts] = []
        self.classes: dict[str, _Class] = {}
        self.order: list[ClassFacts] = []
        self.arg_cache: dict[tuple[str, str, str, str], ArgFact] = {}
        self.frame = self.top = _Frame("<module>", "", "", 1)
        self.scope: _Class | None = None  # the class whose body is being read
        self.managers: tuple[CallableUse, ...] = ()
        self.loops = 0
        self.branch: tuple[str, ...] = ()
        self.row = 0
        self.plain = _PLAIN_BUILTINS - _top_level_names(tree)

    # --- results

    def module(self, tree: ast.Module) -> None:
        self.block(tree.body, 1)

    def facts(self, path: str) -> ModuleFacts:
        top = self.top
        rows = len(self.lines) - (not self.lines[-1])
        functions = [self.finished(top, None, (), "", "", rows)]
        functions += sorted(self.functions, key=lambda facts: (facts.first_row, facts.row, facts.qualname))
        return ModuleFacts(
            path=path,
            imports=tuple(self.imports),
            assigned=(*functions[0].bound, *_either_way(functions[0].rebound)),
            functions=tuple(functions),
            classes=tuple(sorted(self.order, key=lambda facts: (facts.row, facts.qualname))),
            rows=rows,
        )

    def finished(
        self,
        frame: _Frame,
        node: ast.FunctionDef | ast.AsyncFunctionDef | None,
        decorators: tuple[CallableUse, ...],
        owner: str,
        parent: str,
        rows: int = 0,
    ) -> FunctionFacts:
        local_names = frozenset(frame.locals - frame.globals)
        bound, rebound = frame.known()
        reads = frozenset(
            text for text in frame.loads if text not in self.plain and (frame is self.top or text not in local_names)
        )
        if node is None:
            params: tuple[ParamFact, ...] = ()
            first_row, row, header_end_row, end_row, returns, is_async = 1, 1, 1, rows, "", False
        else:
            params = tuple(_params(node.args))
            row, end_row = node.lineno, node.end_lineno or node.lineno
            first_row = min([decorator.lineno for decorator in node.decorator_list] + [row])
            header_end_row = _header_end(node, self.lines)
            returns, is_async = _annotation(node.returns), isinstance(node, ast.AsyncFunctionDef)
        return FunctionFacts(
            qualname=frame.qualname,
            first_row=first_row,
            row=row,
            header_end_row=header_end_row,
            end_row=end_row,
            owner=owner,
            parent=parent,
            params=same(ParamFact, params),
            decorators=decorators,
            is_async=is_async,
            is_generator=frame.generator,
            calls=tuple(frame.calls),
            calls_at=tuple(frame.calls_at),
            names=same(str, frozenset(frame.names)),
            bound=same(str, bound),
            returns=returns,
            rebound=rebound,
            locals=same(str, local_names),
            reads=same(str, reads),
            returned=tuple(frame.returned),
            wraps=tuple(frame.wraps),
            yields=tuple(frame.yields),
            leaves=tuple(use for use in self.managers if use.called),
        )

    # --- expressions

    def read(self, node: ast.expr, depth: int) -> str:
        """Visit an expression whose value is used; a name or attribute is noted as read."""
        kind = type(node)
        if kind is ast.Name:  # the most frequent, without another call
            name: str = node.id  # type: ignore[attr-defined]
            frame = self.frame
            frame.names.add(name)
            frame.loads.add(name)
            return name
        text = self.visit(node, depth)
        if kind is ast.Attribute:
            self.frame.loads.add(text)
        return text

    def visit(self, node: ast.expr, depth: int, used: str = "other") -> str:
        """Note the calls and words of an expression and return its dotted text."""
        kind = type(node)
        if kind is ast.Constant:
            return ""
        frame = self.frame
        if kind is ast.Name:
            name: str = node.id  # type: ignore[attr-defined]
            frame.names.add(name)
            return name
        if depth > MAX_DEPTH:
            raise SourceError(f"is nested more than {MAX_DEPTH} levels deep", node.lineno, node.col_offset + 1)
        depth += 1
        if kind is ast.Attribute:
            attr: str = node.attr  # type: ignore[attr-defined]
            frame.names.add(attr)
            value = node.value  # type: ignore[attr-defined]
            if type(value) is ast.Name:
                frame.names.add(value.id)
                return f"{value.id}.{attr}"
            return f"{self.visit(value, depth) or '?'}.{attr}"
        if kind is ast.Call:
            return self.call(node, depth, used)  # type: ignore[arg-type]
        if kind is ast.Subscript:
            text = self.visit(node.value, depth)  # type: ignore[attr-defined]
            self.read(node.slice, depth)  # type: ignore[attr-defined]
            return f"{text}[]" if text else ""
        if kind is ast.BinOp:
            self.read(node.left, depth)  # type: ignore[attr-defined]
            self.read(node.right, depth)  # type: ignore[attr-defined]
            return ""
        if kind is ast.Tuple or kind is ast.List or kind is ast.Set:
            for element in node.elts:  # type: ignore[attr-defined]
                self.read(element, depth)
            return ""
        if kind is ast.Lambda:
            return self.lambda_(node, depth)  # type: ignore[arg-type]
        if kind is ast.ListComp or kind is ast.SetComp or kind is ast.GeneratorExp or kind is ast.DictComp:
            self.comprehension(node, depth)  # type: ignore[arg-type]
            return ""
        if kind is ast.NamedExpr:
            text = self.read(node.value, depth)  # type: ignore[attr-defined]
            frame.bind(node.target.id, text)  # type: ignore[attr-defined]
            return text
        if kind is ast.Await:
            return self.visit(node.value, depth, used)  # type: ignore[attr-defined]
        if kind is ast.Yield or kind is ast.YieldFrom:
            frame.generator = True
            frame.yields.append(self.managers)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.read(child, depth)
        return ""

    def call(self, node: ast.Call, depth: int, used: str) -> str:
        frame = self.frame
        func = node.func
        callee = self.visit(func, depth)
        args: list[ArgFact] = []
        for argument in node.args:
            if type(argument) is ast.Starred:
                args.append(self.argument("*", argument.value, depth))
            else:
                args.append(self.argument("", argument, depth))
        for keyword in node.keywords:
            if keyword.arg:
                frame.names.add(keyword.arg)
            args.append(self.argument(keyword.arg or "**", keyword.value, depth))
        if callee in self.plain:
            return f"{callee}()"
        if callee == "getattr" and len(args) > 1 and not args[1].name and not args[1].const:
            pattern = _pattern(node.args[1])
            if pattern.strip("*"):
                args[1] = ArgFact("", "", "", pattern)
        callee = sys.intern(callee)
        frame.calls.append(
            CallFact(callee, tuple(args), self.loops, self.managers, used, self.branch, len(frame.calls), frame.deferred > 0)
        )
        frame.calls_at += (node.lineno - frame.row, node.lineno - self.row)
        return f"{callee}()" if callee else ""

    def argument(self, keyword: str, node: ast.expr, depth: int) -> ArgFact:
        name = self.read(node, depth)
        test = const = ""
        if not name:
            const = _literal(node)
            if not const:
                kind = type(node)
                if kind is ast.UnaryOp or kind is ast.Compare:
                    test = _test(node)
        key = (keyword, name, const, test)
        fact = self.arg_cache.get(key)
        if fact is None:
            fact = self.arg_cache[key] = ArgFact(keyword, name, const, test)
        return fact

    def lambda_(self, node: ast.Lambda, depth: int) -> str:
        """Calls in a lambda are kept with the function around it, marked as deferred; its parameters are no locals of it."""
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.read(default, depth)
        self.frame.deferred += 1
        self.read(node.body, depth)
        self.frame.deferred -= 1
        return ""

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, depth: int) -> None:
        for clause in node.generators:
            text = self.read(clause.iter, depth)
            self.loops += 1
            self.loop_target(clause.target, text, depth)
            for condition in clause.ifs:
                self.read(condition, depth)
        if isinstance(node, ast.DictComp):
            self.read(node.key, depth)
            self.read(node.value, depth)
        else:
            self.read(node.elt, depth)
        self.loops -= len(node.generators)

    def use(self, node: ast.expr) -> CallableUse:
        """A manager, decorator or returned value as data; its parts are visited elsewhere."""
        if isinstance(node, ast.IfExp):
            return _either(self.use(node.body), self.use(node.orelse))
        if isinstance(node, ast.Call):
            args = tuple(
                [self.plain_argument("*" if isinstance(a, ast.Starred) else "", a) for a in node.args]
                + [self.plain_argument(k.arg or "**", k.value) for k in node.keywords]
            )
            if isinstance(node.func, ast.IfExp):
                then, other = self.use(node.func.body), self.use(node.func.orelse)
                return _either(CallableUse(then.callee, args, True), CallableUse(other.callee, args, True))
            return CallableUse(_dotted(node.func), args, True)
        return CallableUse(_dotted(node), (), False)

    def plain_argument(self, keyword: str, node: ast.expr) -> ArgFact:
        node = node.value if isinstance(node, ast.Starred) else node
        name = _dotted(node)
        const = "" if name else _literal(node)
        return ArgFact(keyword, name, const, "" if name or const else _test(node))

    # --- statements

    def block(self, statements: Sequence[ast.stmt], depth: int) -> bool:
        """Visit statements in order; True when control cannot reach the end of them."""
        if depth > MAX_DEPTH and statements:
            raise SourceError(f"is nested more than {MAX_DEPTH} levels deep", statements[0].lineno)
        table = _STATEMENTS
        ends = False
        for statement in statements:
            self.row = statement.lineno
            kind = type(statement)
            handler = table.get(kind)
            if handler is not None:
                handler(self, statement, depth)
            else:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self.read(child, depth)
            if kind in _ENDS:
                ends = True
        return ends

    def nothing(self, statement: ast.stmt, depth: int) -> None:
        pass

    def expression_statement(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Expr)
        value = statement.value
        self.visit(value, depth + 1, "dropped")
        if type(value) is ast.Call:
            self.mode_change(value)

    def mode_change(self, node: ast.Call) -> None:
        """A statement that changes the grad mode for what follows: ``set_grad_enabled(…)``, ``stack.enter_context(…)`` …"""
        func = node.func
        name = func.attr if type(func) is ast.Attribute else func.id if type(func) is ast.Name else ""
        if name == "enter_context" and len(node.args) == 1:
            use = self.use(node.args[0])
        elif name == "__enter__" and type(func) is ast.Attribute:
            use = self.use(func.value)
            use = CallableUse(use.callee, use.args, True, use.alternative)
        elif name == "__exit__" and type(func) is ast.Attribute:
            closed = self.use(func.value).callee
            self.managers = tuple(use for use in self.managers if use.callee != closed)
            return
        elif name.endswith("set_grad_enabled") or self.stands_for_set_grad(name):
            use = self.use(node)
            if self.managers and self.managers[-1].callee == use.callee and self.managers[-1].statement:
                self.managers = self.managers[:-1]
        else:
            return
        self.managers = (*self.managers, CallableUse(use.callee, use.args, use.called, use.alternative, True))

    def stands_for_set_grad(self, name: str) -> bool:
        return bool(name) and any(
            bound == name and target.endswith(".set_grad_enabled") for bound, target in self.imports if bound == name
        )

    def assign(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Assign)
        value = statement.value
        text = self.visit(value, depth + 1)
        for target in statement.targets:
            self.store(target, value, text, "", depth + 1)

    def annotated(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.AnnAssign)
        annotation = _annotation(statement.annotation)
        text = self.visit(statement.value, depth + 1) if statement.value is not None else ""
        self.store(statement.target, statement.value, text, annotation, depth + 1)

    def store(self, target: ast.expr, value: ast.expr | None, text: str, annotation: str, depth: int) -> None:
        kind = type(target)
        if kind is ast.Name:
            name: str = target.id  # type: ignore[attr-defined]
            if self.scope is not None:
                self.scope.attrs.append(_attr(name, value, text, annotation, ""))
            elif not (value is not None and _is_same(name, value)):
                self.frame.bind(name, text or (f"{annotation}()" if annotation else ""))
            return
        if kind is ast.Attribute:
            receiver = target.value  # type: ignore[attr-defined]
            frame = self.frame
            if type(receiver) is ast.Name and receiver.id == frame.receiver and frame.receiver and frame.owner:
                same = value is not None and _is_same(_dotted(target), value)
                if not same:
                    owner = self.classes.get(frame.owner)
                    if owner is not None:
                        name = target.attr  # type: ignore[attr-defined]
                        owner.attrs.append(_attr(name, value, text, annotation, frame.qualname))
                        frame.names.add(name)
                        return
        elif (kind is ast.Tuple or kind is ast.List) and isinstance(value, ast.Tuple | ast.List):
            targets = target.elts  # type: ignore[attr-defined]
            if len(targets) == len(value.elts):
                for inner, part in zip(targets, value.elts, strict=True):
                    self.store(inner, part, _dotted(part), "", depth)
                return
        if type(value) is ast.Name or type(value) is ast.Attribute:
            self.frame.loads.add(text)
        self.target(target, depth)

    def target(self, target: ast.expr, depth: int) -> None:
        """Bind the names of an assignment target to values that are not known."""
        kind = type(target)
        if kind is ast.Name:
            self.frame.bind(target.id, "")  # type: ignore[attr-defined]
        elif kind is ast.Tuple or kind is ast.List:
            for element in target.elts:  # type: ignore[attr-defined]
                self.target(element, depth + 1)
        elif kind is ast.Starred:
            self.target(target.value, depth + 1)  # type: ignore[attr-defined]
        else:
            self.visit(target, depth)

    def loop_target(self, target: ast.expr, text: str, depth: int) -> None:
        if type(target) is ast.Name and text:
            self.frame.bind(target.id, f"{text}[]")
        else:
            self.target(target, depth)

    def augmented(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.AugAssign)
        self.visit(statement.target, depth + 1)
        self.read(statement.value, depth + 1)
        if type(statement.target) is ast.Name and self.scope is None:
            self.frame.bind(statement.target.id, "")

    def return_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Return)
        value = statement.value
        if value is None:
            return
        text = self.visit(value, depth + 1, "returned")
        if type(value) is ast.Name or type(value) is ast.Attribute:
            self.frame.loads.add(text)
            self.frame.returned.append(CallableUse(text, (), False))
        elif type(value) is ast.Call:
            # `return torch.no_grad()(function)` decorates, anything else is what the caller gets.
            if type(value.func) is ast.Call and len(value.args) == 1 and type(value.args[0]) is ast.Name:
                self.frame.wraps.append(self.use(value.func))
            else:
                self.frame.returned.append(self.use(value))
        elif type(value) is ast.IfExp:
            self.frame.returned.append(self.use(value))
        else:
            self.frame.returned.append(_NO_USE)

    def if_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.If)
        self.read(statement.test, depth + 1)
        test = _branch(statement.test)
        outside, before = self.branch, self.managers
        self.branch = (*outside, test)
        then_ends = self.block(statement.body, depth + 1)
        then_managers, self.managers = self.managers, before
        else_ends = False
        if statement.orelse:
            self.branch = (*outside, f"not {test}" if test else "")
            else_ends = self.block(statement.orelse, depth + 1)
        self.branch = outside
        if then_ends == else_ends:
            self.managers = _joined(before, then_managers, self.managers)
        elif else_ends:
            self.managers = then_managers

    def for_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.For | ast.AsyncFor)
        text = self.read(statement.iter, depth + 1)
        self.loop_target(statement.target, text, depth + 1)
        self.loops += 1
        self.block(statement.body, depth + 1)
        self.loops -= 1
        self.block(statement.orelse, depth + 1)

    def while_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.While)
        self.loops += 1
        self.read(statement.test, depth + 1)
        self.block(statement.body, depth + 1)
        self.loops -= 1
        self.block(statement.orelse, depth + 1)

    def with_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.With | ast.AsyncWith)
        before = self.managers
        touches_grad = False
        for item in statement.items:
            text = self.read(item.context_expr, depth + 1)
            use = self.use(item.context_expr)
            self.managers = (*self.managers, use)
            touches_grad = touches_grad or "grad" in use.callee or "inference_mode" in use.callee
            if item.optional_vars is not None:
                if type(item.optional_vars) is ast.Name:
                    self.frame.bind(item.optional_vars.id, text)
                else:
                    self.target(item.optional_vars, depth + 1)
        inside = len(self.managers)
        self.block(statement.body, depth + 1)
        # What a with-block entered it leaves; a `set_grad_enabled` inside outlives it unless it restores the mode itself.
        left = () if touches_grad else tuple(use for use in self.managers[inside:] if use.callee.endswith("set_grad_enabled"))
        self.managers = before + left

    def try_(self, statement: ast.stmt, depth: int) -> None:
        before = self.managers
        ends = self.block(statement.body, depth + 1)  # type: ignore[attr-defined]
        after = self.managers
        for handler in statement.handlers:  # type: ignore[attr-defined]
            self.managers = before
            self.row = handler.lineno
            if handler.type is not None:
                self.read(handler.type, depth + 1)
            if handler.name:
                self.frame.bind(handler.name, "")
            self.block(handler.body, depth + 2)
        self.managers = after if not ends else before
        self.block(statement.orelse, depth + 1)  # type: ignore[attr-defined]
        self.block(statement.finalbody, depth + 1)  # type: ignore[attr-defined]

    def match(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Match)
        self.read(statement.subject, depth + 1)
        outside, before = self.branch, self.managers
        self.branch = (*outside, "")
        after = before
        for case in statement.cases:
            self.managers = before
            for node in ast.walk(case.pattern):
                if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                    self.frame.bind(node.name, "")
                elif isinstance(node, ast.MatchMapping) and node.rest:
                    self.frame.bind(node.rest, "")
                elif isinstance(node, ast.MatchValue):
                    self.read(node.value, depth + 2)
                elif isinstance(node, ast.MatchClass):
                    self.read(node.cls, depth + 2)
            if case.guard is not None:
                self.read(case.guard, depth + 2)
            if not self.block(case.body, depth + 2):
                after = _joined(before, after, self.managers)
        self.branch, self.managers = outside, after

    def global_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Global | ast.Nonlocal)
        self.frame.globals.update(statement.names)

    def import_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.Import)
        for alias in statement.names:
            if alias.asname:
                self.imports[alias.asname, alias.name] = None
            else:
                head = alias.name.partition(".")[0]
                self.imports[head, head] = None

    def import_from(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.ImportFrom)
        module = "." * statement.level + (statement.module or "")
        for alias in statement.names:
            if alias.name == "*":
                self.imports[f"*{module}", module] = None
            else:
                dotted = module + alias.name if module.endswith(".") else f"{module}.{alias.name}"
                self.imports[alias.asname or alias.name, dotted] = None

    def function(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        outer, scope = self.frame, self.scope
        # The words of decorators are both the surroundings' (which call them) and the function's (whose region has them).
        around, outer.names = outer.names, set()
        for decorator in statement.decorator_list:
            self.visit(decorator, depth + 1)
        header_words, outer.names = outer.names, around
        around |= header_words
        arguments = statement.args
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None:
                self.read(default, depth + 2)
        if scope is not None:
            prefix, owner = f"{scope.qualname}.", scope.qualname
            scope.methods[statement.name] = prefix + statement.name
        else:
            prefix, owner = "" if outer is self.top else f"{outer.qualname}.", ""
            outer.bind(statement.name, "")
            # A function is no value that facts can name by its text; it is found among the functions.
            outer.bound.pop(statement.name, None)
        parent = "" if outer is self.top else outer.qualname
        frame = _Frame(sys.intern(prefix + statement.name), outer.owner, outer.receiver, statement.lineno)
        decorators = tuple(self.use(decorator) for decorator in statement.decorator_list)
        if owner:
            frame.owner, frame.receiver = owner, _receiver(statement, decorators)
        frame.names |= header_words
        for argument in _all_arguments(arguments):
            frame.locals.add(argument.arg)
        state = (self.managers, self.loops, self.branch)
        self.frame, self.scope, self.managers, self.loops, self.branch = frame, None, (), 0, ()
        self.block(statement.body, depth + 1)
        self.functions.append(self.finished(frame, statement, decorators, owner, parent))
        self.frame, self.scope = outer, scope
        self.managers, self.loops, self.branch = state
        if outer is not self.top:
            outer.names |= frame.names

    def class_(self, statement: ast.stmt, depth: int) -> None:
        assert isinstance(statement, ast.ClassDef)
        outer_scope = self.scope
        for decorator in statement.decorator_list:
            self.visit(decorator, depth + 1)
        for base in statement.bases:
            self.visit(base, depth + 1)
        for keyword in statement.keywords:
            self.read(keyword.value, depth + 2)
        if outer_scope is not None:
            qualname = f"{outer_scope.qualname}.{statement.name}"
        elif self.frame is self.top:
            qualname = statement.name
        else:
            qualname = f"{self.frame.qualname}.{statement.name}"
        if outer_scope is None:
            self.frame.locals.add(statement.name)
        scope = _Class(sys.intern(qualname))
        self.classes[qualname] = scope
        self.scope = scope
        self.block(statement.body, depth + 1)
        self.scope = outer_scope
        self.order.append(
            ClassFacts(
                qualname=scope.qualname,
                row=statement.lineno,
                end_row=statement.end_lineno or statement.lineno,
                bases=tuple(_base(base) for base in statement.bases),
                decorators=tuple(self.use(decorator) for decorator in statement.decorator_list),
                methods=tuple(scope.methods.items()),
                attrs=tuple(scope.attrs),
            )
        )


_STATEMENTS: dict[type[ast.AST], Callable[[_Walk, ast.stmt, int], None]] = {
    ast.Expr: _Walk.expression_statement,
    ast.Assign: _Walk.assign,
    ast.AnnAssign: _Walk.annotated,
    ast.AugAssign: _Walk.augmented,
    ast.Return: _Walk.return_,
    ast.If: _Walk.if_,
    ast.For: _Walk.for_,
    ast.AsyncFor: _Walk.for_,
    ast.While: _Walk.while_,
    ast.With: _Walk.with_,
    ast.AsyncWith: _Walk.with_,
    ast.FunctionDef: _Walk.function,
    ast.AsyncFunctionDef: _Walk.function,
    ast.ClassDef: _Walk.class_,
    ast.Import: _Walk.import_,
    ast.ImportFrom: _Walk.import_from,
    ast.Global: _Walk.global_,
    ast.Nonlocal: _Walk.global_,
    ast.Match: _Walk.match,
    ast.Try: _Walk.try_,
    ast.Pass: _Walk.nothing,
    ast.Break: _Walk.nothing,
    ast.Continue: _Walk.nothing,
}
"""Not bound to a walk: one that referred to itself would keep its tree until the garbage collector comes by."""
if sys.version_info >= (3, 11):
    _STATEMENTS[ast.TryStar] = _Walk.try_

_ENDS = frozenset({ast.Return, ast.Raise, ast.Break, ast.Continue})


def _either_way(rebound: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names that stand for one attribute or another of a module, as by version (``inference_mode = torch.inference_mode``, or
    else ``torch.no_grad``), with the first: as of a name that is imported from one place or another."""
    texts: dict[str, list[str]] = {}
    for name, text in rebound:
        texts.setdefault(name, []).append(text)
    return [(name, each[0]) for name, each in texts.items() if all(map(_ATTRIBUTE.fullmatch, each))]


def _top_level_names(tree: ast.Module) -> set[str]:
    """Names that the module binds itself, so that a function called ``print`` is not taken for the builtin."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in statement.names)
    return found


def _pattern(node: ast.expr) -> str:
    """A name that is put together (``f"get_{kind}_feature"``, ``"get_" + kind``) with ``*`` for what is not known; "*" for anything
    else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _pattern(node.left) + _pattern(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return _pattern(node.left).replace("%s", "*")
    return "*"


def _either(then: CallableUse, other: CallableUse) -> CallableUse:
    return CallableUse(then.callee, then.args, then.called, other)


def _joined(
    before: tuple[CallableUse, ...], one: tuple[CallableUse, ...], other: tuple[CallableUse, ...]
) -> tuple[CallableUse, ...]:
    """The managers in force after two branches meet."""
    if one == other:
        return one
    last_one = one[-1] if len(one) >= len(before) and one != before else _NO_USE
    last_other = other[-1] if len(other) >= len(before) and other != before else _NO_USE
    if last_one == _NO_USE:
        last_one, last_other = last_other, last_one
    return (*before, CallableUse(last_one.callee, last_one.args, last_one.called, last_other, last_one.statement))


def _is_same(name: str, value: ast.expr) -> bool:
    """Whether ``name = value`` leaves what ``name`` is: moved, wrapped, or set to evaluate."""
    if not isinstance(value, ast.Call):
        return False
    func = value.func
    if isinstance(func, ast.Attribute) and func.attr in _SAME_METHODS and _dotted(func.value) == name:
        return True
    last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return last in _SAME_WRAPPERS and bool(value.args) and _dotted(value.args[0]) == name


def _attr(name: str, value: ast.expr | None, text: str, annotation: str, method: str) -> AttrFact:
    kind, const = "other", ""
    if value is not None:
        const = _literal(value)
        if const:
            kind = "const"
        elif isinstance(value, ast.Call):
            kind = "call"
        elif isinstance(value, ast.Name | ast.Attribute):
            kind = "name"
        elif isinstance(value, ast.List | ast.ListComp):
            kind = "list"
        elif isinstance(value, ast.Dict | ast.DictComp):
            kind = "dict"
        elif isinstance(value, ast.Set | ast.SetComp):
            kind = "set"
        elif isinstance(value, ast.Tuple):
            kind = "tuple"
        elif isinstance(value, ast.Lambda):
            kind = "function"
    if not text and kind == "other" and isinstance(value, ast.BoolOp | ast.IfExp):
        text = _alternative(value)
    return AttrFact(name, kind, text, const, method, annotation, _element(value))


def _alternative(value: ast.BoolOp | ast.IfExp) -> str:
    """Text of the one operand that has any: ``Net() if x else None``, ``given or Net()``."""
    options = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.values
    texts = {text for text in map(_dotted, options) if text}
    calls = {text for text in texts if text.endswith("()")}
    chosen = calls or texts
    return chosen.pop() if len(chosen) == 1 else ""


def _element(value: ast.expr | None) -> str:
    """Text of what a container display, or a ``ModuleList`` of one, holds, when all of it has the same text."""
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return _dotted(value.elt)
    if isinstance(value, ast.DictComp):
        return _dotted(value.value)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        texts = {_dotted(element) for element in value.elts}
        return texts.pop() if len(texts) == 1 else ""
    if isinstance(value, ast.Dict):
        texts = {_dotted(element) for element in value.values}
        return texts.pop() if len(texts) == 1 else ""
    return ""


def _base(node: ast.expr) -> str:
    """A base class's text; of ``Generic[T]`` the part before the bracket."""
    return _dotted(node.value if isinstance(node, ast.Subscript) else node)


def _receiver(node: ast.FunctionDef | ast.AsyncFunctionDef, decorators: Iterable[CallableUse]) -> str:
    """The name that a method's instance goes by, "" in a static or class method."""
    if any(use.callee in ("staticmethod", "classmethod") for use in decorators):
        return ""
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return first[0].arg if first else ""


def _all_arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from arguments.posonlyargs
    yield from arguments.args
    if arguments.vararg:
        yield arguments.vararg
    yield from arguments.kwonlyargs
    if arguments.kwarg:
        yield arguments.kwarg


def _params(arguments: ast.arguments) -> Iterator[ParamFact]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        yield _param(argument, default, "positional")
    if arguments.vararg:
        yield _param(arguments.vararg, None, "*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _param(argument, default, "keyword")
    if arguments.kwarg:
        yield _param(arguments.kwarg, None, "**")


def _param(argument: ast.arg, default: ast.expr | None, kind: str) -> ParamFact:
    return _param_fact(argument.arg, _annotation(argument.annotation), _literal(default) if default is not None else "", kind)


@lru_cache(maxsize=5000)
def _param_fact(name: str, annotation: str, default: str, kind: str) -> ParamFact:
    return ParamFact(name, annotation, default, kind)  # a project's functions have many of the same


def _header_end(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: Sequence[str]) -> int:
    """The row of the colon that ends a ``def``."""
    row = node.lineno
    for argument in _all_arguments(node.args):
        row = max(row, argument.end_lineno or row)
    for expression in [*node.args.defaults, *node.args.kw_defaults, node.returns]:
        if expression is not None:
            row = max(row, expression.end_lineno or row)
    # Only closing brackets, commas and comments can stand between here and the colon.
    body = node.body[0].lineno
    while row < body and not lines[row - 1].partition("#")[0].rstrip().endswith(":"):
        row += 1
    return min(row, body)
