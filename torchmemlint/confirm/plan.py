"""From a finding to its experiment: what the child is sent, with the doubts that no run of it can settle."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchmemlint.confirm.around import cells_of, files_around, settings_around
from torchmemlint.confirm.freezing import frozen_near
from torchmemlint.confirm.syntax import calls_at, functions_in, is_definition, last_name, names_in, target_of
from torchmemlint.confirm.verdict import Doubts
from torchmemlint.errors import SourceError
from torchmemlint.files.reading import MAX_BYTES, as_text, read_beginning, read_text
from torchmemlint.findings import Confidence, Finding
from torchmemlint.rules import rule_of
from torchmemlint.rules.card import About, Correction, Shown
from torchmemlint.source import is_notebook
from torchmemlint.source.tolerant import readable
from torchmemlint.torch_facts import TORCH

if TYPE_CHECKING:
    from torchmemlint.index.project import Project
    from torchmemlint.source.notebook import CellRows

_TAKES_GRADIENTS = TORCH.words["back-propagates"] | {"grad"}
"""Attributes by which code asks for gradients, or looks at them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One finding and its experiment. ``job`` is None where there is none: then ``reason`` says why. Picklable, for any
    executor."""

    finding: Finding
    job: Mapping[str, object] | None
    doubts: Doubts
    reason: str = ""
    cells: CellRows | None = None

    def in_cells(self, words: str) -> str:
        """Words about lines of the code that ran; of a notebook, about those of its cells."""
        if self.cells is None:
            return words
        return _ROWS.sub(self._in_cell, words)

    def _in_cell(self, row: re.Match[str]) -> str:
        assert self.cells is not None
        cell, place = self.cells.place(int(row[1]))
        return f"line {place} of cell {cell}"


_ROWS = re.compile(r"\bline (\d+)")


def plan(finding: Finding, text: str | None, project: Project | None = None) -> Plan:
    """The experiment for a finding in a file of this text (of a notebook: the module that its cells make); ``project`` gives
    the grad mode of the function's callers."""
    return _planned(finding, lambda finding: _plan(finding, text, project))


def _planned(finding: Finding, make: Callable[[Finding], Plan]) -> Plan:
    """The plan of a finding; one in a notebook is made of the same in the module of its cells."""
    if finding.cell is None:
        return make(finding)
    cells = cells_of(finding.path)
    try:
        inside = None if cells is None else cells.in_module(finding)
    except KeyError:
        inside = None
    if inside is None:
        return Plan(finding, None, Doubts(), "the cell of the notebook cannot be read")
    return replace(make(inside), finding=finding, cells=cells)


def _plan(finding: Finding, text: str | None, project: Project | None) -> Plan:
    rule = rule_of(finding.code)
    if rule.about is About.ALLOCATOR:
        return Plan(finding, None, Doubts(), "cuda only: the rule is about the CUDA allocator")
    if rule.correction is None:
        return Plan(finding, None, Doubts(), f"there is no experiment for {finding.code}; try `torchmemlint run --check`")
    found = _program(finding, text)
    if isinstance(found, str):
        return Plan(finding, None, Doubts(), found)
    text, tree = found
    job = _job(finding, text, tree, project, rule.correction)
    grad, claimed = str(job["grad"]), bool(finding.message)
    statement = _statement_at(tree, finding.span.start.row)
    place = _kept_in(statement) if rule.about is not About.NEEDLESS_GRAPH else None
    name = last_name(place)
    doubts = Doubts(
        grad,
        consumed_later(tree, name, finding.function, isinstance(place, ast.Name)) if name else 0,
        frozen_near(tree, finding.function, _forward_called(finding, tree), _modules_of(job)),
        claimed,
        bounded(tree, finding.span.start.row, claimed) if rule.correction is Correction.ROOM else "",
    )
    return Plan(finding, job, doubts)


def _forward_called(finding: Finding, tree: ast.Module) -> str:
    """What is called in the place that a finding about a forward points at; "" for other findings."""
    if rule_of(finding.code).about is not About.NEEDLESS_GRAPH:
        return ""
    start, end = finding.span.start, finding.span.end
    exact, starting = calls_at(tree, (start.row, start.column), (end.row, end.column))
    return next((ast.unparse(node.func) for node in [*exact, *starting]), "")


def _modules_of(job: Mapping[str, object]) -> dict[str, ast.Module]:
    modules = job.get("modules")
    return {name: ast.parse(text) for name, text in modules.items()} if isinstance(modules, dict) else {}


def bounded(tree: ast.Module, row: int, claimed: bool) -> str:
    """Why what a joined tensor holds may not grow on: it is cut or set again in the same loop, or the loop (of a line that the
    linter does not report) says that it turns few times. "" where nothing of this is visible."""
    statement = _statement_at(tree, row)
    place = _kept_in(statement)
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno < row <= (node.end_lineno or 0)
    ]
    if place is None or not loops or not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return "" if loops else "it is not in a loop of its function"
    loop = max(loops, key=lambda node: node.lineno)
    parts = [statement.value.body, statement.value.orelse] if isinstance(statement.value, ast.IfExp) else [statement.value]
    if any(isinstance(part, ast.Subscript) for part in parts):
        return f"line {row} keeps a part of what it joins"
    if isinstance(loop, ast.For) and not claimed and (turns := _turns(loop.iter)):
        return f"the loop on line {loop.lineno} runs {turns} times"
    words = ast.unparse(place)
    beside = {id(node) for node in _branches_beside(loop, statement)}
    for node in ast.walk(loop):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Delete)) and node is not statement and id(node) not in beside:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if any(ast.unparse(target) == words for target in targets) and words not in _joined(node):
                return f"line {node.lineno} sets `{words}` again: how long it grows is unknown"
    return ""


def _joined(node: ast.Assign | ast.AnnAssign | ast.Delete) -> set[str]:
    """What a statement joins: the tensor goes on, where it is one of them."""
    value = None if isinstance(node, ast.Delete) else node.value
    if not isinstance(value, ast.Call):
        return set()
    return {ast.unparse(item) for argument in [*value.args, *(k.value for k in value.keywords)] for item in ast.walk(argument)
            if isinstance(item, ast.expr)}  # fmt: skip


def _branches_beside(loop: ast.AST, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of the other branch of each ``if`` around a statement: the first turn."""
    for node in ast.walk(loop):
        if isinstance(node, ast.If):
            for mine, other in ((node.body, node.orelse), (node.orelse, node.body)):
                if any(item is statement for part in mine for item in ast.walk(part)):
                    yield from (item for part in other for item in ast.walk(part) if isinstance(item, ast.stmt))


FEW_TURNS = 16


def _turns(items: ast.expr) -> int:
    """How often a loop over ``range(4)`` or a list turns; 0 where that is many times, or not known."""
    if isinstance(items, (ast.List, ast.Tuple)):
        return len(items.elts) if len(items.elts) <= FEW_TURNS else 0
    if isinstance(items, ast.Call) and ast.unparse(items.func) == "range" and len(items.args) == 1:
        last = items.args[0]
        if isinstance(last, ast.Constant) and isinstance(last.value, int) and 0 < last.value <= FEW_TURNS:
            return last.value
    return 0


def plan_fix(finding: Finding, text: str | None, project: Project | None = None) -> Plan:
    """The experiment on a finding's fix alone: whether it changes what the program does."""
    return _planned(finding, lambda finding: _plan_fix(finding, text, project))


def _plan_fix(finding: Finding, text: str | None, project: Project | None) -> Plan:
    found = _program(finding, text)
    if isinstance(found, str):
        return Plan(finding, None, Doubts(), found)
    text, tree = found
    job = _job(finding, text, tree, project, rule_of(finding.code).correction or Correction.OWN_FIX)
    if "fixed_source" not in job:
        return Plan(finding, None, Doubts(), "the fix could not be applied")
    return Plan(finding, {**job, "runner": "compared"}, Doubts())


def _program(finding: Finding, text: str | None) -> tuple[str, ast.Module] | str:
    """The text of a finding's file and its tree, or why its code is not run."""
    if text is None:
        return "the file cannot be read"
    try:
        text = readable(text)
        return text, ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return f"the file cannot be parsed: {error}"


def _job(finding: Finding, text: str, tree: ast.Module, project: Project | None, correction: Correction) -> dict[str, object]:
    """What the child gets."""
    grad, start, end = caller_mode(finding, project), finding.span.start, finding.span.end
    claimed = bool(finding.message)  # one that only the command line asked for says nothing
    if grad == "default" and not claimed and project is not None and _named_elsewhere(finding):
        grad = "unknown"
    job: dict[str, object] = {
        "runner": "isolated", "source": text, "place": [start.row, start.column, end.row, end.column],
        "correction": correction.value, "keyword": rule_of(finding.code).keyword, "grad": grad, "claimed": claimed,
    }  # fmt: skip
    if project is not None:
        job |= _project_modules(finding.path, tree, project)
    settings = fractions_of(settings_around(finding.path)) if project is not None else {}
    job["defaults"] = {**settings, **defaults_in([tree, *_modules_of(job).values()])}
    fixed = fixed_twin(finding, text)
    if fixed is not None:
        job["fixed_source"], job["fixed_row"] = fixed
        job["cuts"] = _cuts(finding)
    return job


def _cuts(finding: Finding) -> str:
    """What the finding's fix takes from backwards on purpose, as ``Cut`` of the worker's ``compare`` names it."""
    rule = rule_of(finding.code)
    if Shown.ONLY_CONSTANT in rule.shown:
        return "others"
    return "earlier" if rule.correction is Correction.DETACH_STATE else ""


def defaults_in(trees: Iterable[ast.AST]) -> Mapping[str, float]:
    """The options that are fractions (a rate, a probability), which constructors check: the ``default`` of arguments of a command
    line, fields of classes. Of others a stand-in does."""
    found: dict[str, float] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            default = next((item.value for item in node.keywords if item.arg == "default"), None)
            name = max(names, key=len, default="").lstrip("-").replace("-", "_")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, default = node.target.id, node.value
        else:
            continue
        if name and isinstance(default, ast.Constant) and isinstance(default.value, float):
            found.setdefault(name, default.value)
    return found


_SETTING = re.compile(
    r"""^[ \t]*(?:-[ \t]+)?["']?([A-Za-z_]\w*)["']?[ \t]*:[ \t]*([+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)
MAX_SETTINGS_BYTES = 64_000


def fractions_of(paths: Iterable[str]) -> Mapping[str, float]:
    """The settings in YAML files that are fractions, each as the first file has it; ``lr: 1e-3`` is meant as a number, too."""
    found: dict[str, float] = {}
    for path in paths:
        try:
            text = as_text(read_beginning(path, MAX_SETTINGS_BYTES), "replace")
        except OSError:
            continue
        for name, number in _SETTING.findall(text):
            found.setdefault(name, float(number))
    return found


def caller_mode(finding: Finding, project: Project | None) -> str:
    """ "on", "off", "default" (no visible code changes it) or "unknown": the grad mode in which the finding's function
    starts."""
    if not finding.function or finding.function == "<module>":
        return "on"
    if project is not None:
        from torchmemlint.index.project import FunctionRef

        try:
            mode = project.grad_mode(FunctionRef(finding.path, finding.function))
        except (KeyError, RecursionError):
            mode = None
        if mode is not None and mode.mode == "off":
            return "off"
        if mode is not None and mode.mode in {"on", "mixed"} and not mode.assumed:
            return "on"
        if mode is not None and (mode.mode == "no-callers" or mode.mode == "on"):
            return "default"
    # of a finding whose every step was resolved, the linter knows the mode (and of none at all, nobody does)
    return "on" if finding.confidence is Confidence.HIGH and finding.message else "unknown"


def _named_elsewhere(finding: Finding) -> bool:
    """Whether another file around has a call that, by its name, may be one of the finding's function: a caller that could not
    be resolved decides the grad mode."""
    call = finding.function.rpartition(".")[2] + "("
    for path in files_around(finding.path):
        if os.path.samefile(path, finding.path):
            continue
        try:
            lines = as_text(read_beginning(path, MAX_BYTES), "replace").split("\n")
        except OSError:
            continue
        if any(call in line and not line.lstrip().startswith(("def ", "async def ", "#")) for line in lines):
            return True
    return False


def fixed_twin(finding: Finding, text: str) -> tuple[str, int] | None:
    """The file with the finding's fix, and the row where the flagged statement is then; None without a fix."""
    if finding.fix is None or not finding.fix.edits:
        return None
    from torchmemlint.fixes.apply import apply_fixes
    from torchmemlint.source.file import source_from_text

    try:
        name = f"{finding.path}.py" if is_notebook(finding.path) else finding.path  # the text is that of its module
        result = apply_fixes(source_from_text(name, text), [finding], unsafe=True)
    except SourceError:
        return None
    if not result.applied:
        return None
    start = finding.span.start
    above = sum(
        edit.content.count("\n") - (edit.span.end.row - edit.span.start.row)
        for edit in finding.fix.edits
        if edit.span.end <= start
    )
    imports = (
        result.text.count("\n")
        - text.count("\n")
        - sum(edit.content.count("\n") - (edit.span.end.row - edit.span.start.row) for edit in finding.fix.edits)
    )
    return result.text, _row_in_twin(text, result.text, start.row, start.row + above + imports)


def _row_in_twin(text: str, fixed: str, row: int, expected: int) -> int:
    """The row of the flagged statement in the corrected text: where the fix left it as it is, that of the one in its turn among
    its like."""
    try:
        before, after = ast.parse(text), ast.parse(fixed)
    except (SyntaxError, ValueError, RecursionError):
        return expected
    statement = _statement_at(before, row)
    if statement is None or hasattr(statement, "body"):
        return expected
    words = ast.unparse(statement)
    first, second = (
        sorted(
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt) and type(node) is type(statement) and ast.unparse(node) == words
        )
        for tree in (before, after)
    )
    return second[first.index(statement.lineno)] if len(first) == len(second) else expected


MAX_MODULES, MAX_MODULE_BYTES = 12, 600_000


def _project_modules(path: str, tree: ast.Module, project: Project) -> Mapping[str, object]:
    """The file's dotted name, and the sources of the project's modules that it imports, directly or through those."""
    if path not in project.paths:
        return {}
    by_name = {project.module_name(other): other for other in project.paths}
    name = project.module_name(path)
    found: dict[str, str] = {}
    waiting = [(name, path.endswith("__init__.py"), tree)]
    packages = {wanted for wanted, other in by_name.items() if other.endswith("__init__.py")}
    size = 0
    while waiting and len(found) < MAX_MODULES:
        importer, is_package, module = waiting.pop(0)
        for wanted in _imported(module, importer if is_package else importer.rpartition(".")[0]):
            other = by_name.get(wanted)
            if other is None or wanted in found or wanted == name:
                continue
            try:
                text = read_text(other, MAX_BYTES)
                parsed = ast.parse(text)
            except (OSError, ValueError, SyntaxError):
                continue
            size += len(text)
            if size > MAX_MODULE_BYTES:
                return {"module": name, "modules": found, "packages": sorted(packages & {name, *found})}
            found[wanted] = text
            waiting.append((wanted, other.endswith("__init__.py"), parsed))
    return {"module": name, "modules": found, "packages": sorted(packages & {name, *found})}


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Absolute names of what the ``from … import`` statements may load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            above = ".".join(parts[: len(parts) - (node.level - 1)]) if node.level else ""
            base = ".".join(part for part in (above, node.module or "") if part)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _statement_at(tree: ast.Module, row: int) -> ast.stmt | None:
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or row):
            if found is None or (node.lineno, -(node.end_lineno or 0)) >= (found.lineno, -(found.end_lineno or 0)):
                found = node
    return found


def _kept_in(statement: ast.stmt | None) -> ast.expr | None:
    """The name or attribute that the statement stores into."""
    target = target_of(statement)
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    return target


def consumed_later(tree: ast.Module, name: str, function: str, local: bool = False) -> int:
    """The line where code of this file reads the place ``name`` (or calls the function that returns it) in a function that also runs a
    backward, 0 for none; a ``local`` name is only read in its own function."""
    own = function.rsplit(".", 1)[-1]
    returned = any(
        isinstance(node, ast.Return) and node.value is not None and name in names_in(node.value)
        for scope in functions_in(tree) if scope.name == own for node in ast.walk(scope)
    )  # fmt: skip
    for scope in [*functions_in(tree), tree]:
        nodes = (
            list(ast.walk(scope))
            if scope is not tree
            else [node for top in tree.body if not is_definition(top) for node in ast.walk(top)]
        )
        if not any(isinstance(node, ast.Attribute) and node.attr in _TAKES_GRADIENTS for node in nodes):
            continue
        elsewhere = local and own != getattr(scope, "name", own)
        for node in nodes:
            if returned and isinstance(node, ast.Call) and own in names_in(node.func):
                return node.lineno
            if elsewhere:
                continue
            if isinstance(node, ast.Call) and any(name in names_in(argument) for argument in node.args):
                return node.lineno  # sum(losses), torch.stack(self.log_probs)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and name in names_in(node.func.value):
                if node.func.attr in {"backward", "mean", "sum"}:
                    return node.lineno
            if isinstance(node, (ast.For, ast.comprehension)) and name in names_in(node.iter):
                return node.iter.lineno
    return 0
