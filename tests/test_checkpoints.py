"""What TML506 says of a checkpoint's cost: what is held, and until when."""

from __future__ import annotations

import re

import pytest
from gaps import ROOT, alarms, without_marks

from torchmemlint.findings import Finding

FOLDER = ROOT / "TML506"
UNTIL = re.compile(r"# until: (\S+)")


def found(name: str) -> list[Finding]:
    return alarms({name: without_marks((FOLDER / name).read_text(encoding="utf-8"))}, "TML506", "low")


def test_the_cost_names_the_row_that_binds_the_name_again() -> None:
    rows = {
        marker[1].replace("module", ""): row
        for row, line in enumerate((FOLDER / "bound_again.py").read_text(encoding="utf-8").splitlines(), 1)
        if (marker := UNTIL.search(line))
    }
    assert len(rows) == 5
    for finding in found("bound_again.py"):
        row = rows.get(finding.function)
        if row is None:
            assert "on the device during all steps" in finding.cost
        else:
            verb = r"deletes `\w+`" if "deleted" in finding.function else r"rebinds `\w+`"
            assert re.search(rf"on the device until line {row} {verb}(;|$)", finding.cost), finding.cost


def test_weights_that_were_saved_from_the_host_are_no_second_copy() -> None:
    folder = FOLDER / "weights_saved_on_the_host"
    texts = {path.name: without_marks(path.read_text(encoding="utf-8")) for path in folder.glob("train.py")}
    costs = {finding.function: finding.cost for finding in alarms(texts, "TML506", "low")}
    assert costs == {
        "Learner.restore": "what the file holds under `optimizer` on the device, until the dict is dropped",
        "Learner.resume": "what the file holds under `optimizer`, on the device during all steps; the code does not show that the networks are "
        "large",
    }


def test_the_flow_names_the_callers_that_hold_what_a_function_returns() -> None:
    folder = FOLDER / "handed_to_callers"
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    held: dict[str, set[tuple[str, int]]] = {}
    for name, text in texts.items():
        for row, line in enumerate(text.splitlines(), 1):
            if marker := re.search(r"# held: (\S+)", line):
                held.setdefault(marker[1], set()).add((name, row))
    assert len(held) == 9
    findings = alarms({name: without_marks(text) for name, text in texts.items()}, "TML506", "low")
    costs = {
        finding.function: {(step.path, step.span.start.row) for step in finding.flow if "bound here" in step.message}
        for finding in findings
    }
    assert costs == held
    assert all(finding.fix is None for finding in findings)


def test_an_optimizer_takes_the_tensors_of_its_state() -> None:
    costs = {finding.function: finding.cost for finding in found("schedulers.py")}
    taken = {function for function, cost in costs.items() if cost.startswith("no second copy")}
    assert taken == {
        "",
        "Trainer.resume_optimizer",
        "wrapper_of_an_optimizer",
        "held_state_of_an_optimizer",
    }
    assert costs["averages_made_of_a_network"].startswith("a second copy of the weights")


@pytest.mark.parametrize(
    ("words", "fixed"), [(2, True), (900, False), (1003, False)], ids=["read", "too deep to follow", "too deep to read"]
)
def test_a_method_that_cannot_be_read_may_keep_what_it_is_given(words: int, fixed: bool) -> None:
    restores = f"class Net:\n    def load_state_dict(self, state):\n        {' or '.join(['state'] * words)}\n"
    program = (
        "import torch\nimport net\n\n\ndef resume(path, model):\n    model.load_state_dict(torch.load(path))\n    model.cuda().train()\n"
        "    for each in model.parameters():\n        each.requires_grad_(True)\n    return model\n"
    )
    found = alarms({"net.py": restores, "resume.py": program}, confidence="low")
    assert [(one.code, bool(one.fix)) for one in found] == [("TML506", fixed)]
