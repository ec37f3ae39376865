"""What a function does to a network that it calls by a name: may it leave all of its parameters frozen?"""

import pytest
from gaps import alarms

from torchmemlint.index.module_facts import module_facts
from torchmemlint.semantics.identity.frozen_by_callers import may_freeze

LOOP = "def f(net):\n    for p in net.parameters():\n        p.requires_grad = False\n    return net\n"


@pytest.mark.parametrize(
    ("text", "methods", "expected"),
    [
        (LOOP, {"parameters"}, True),
        (LOOP.replace("p in net.parameters()", "_, p in net.named_parameters()"), {"named_parameters"}, True),
        (LOOP.replace("= False", "= flag"), {"parameters"}, True),
        (LOOP.replace("= False", "= True"), {"parameters"}, False),
        (LOOP.replace("p.requires_grad = False", "print(p.shape)"), {"parameters"}, False),
        (
            "def f(net):\n    for n, p in net.named_parameters():\n        print(n, p.requires_grad)\n",
            {"named_parameters"},
            False,
        ),
        ("def f(net):\n    net.requires_grad_(False)\n", {"requires_grad_"}, True),
    ],
    ids=["loop", "pairs", "a flag", "thawed", "no flag", "only read", "method"],
)
def test_a_function_may_leave_a_network_frozen(text: str, methods: set[str], expected: bool) -> None:
    facts = module_facts("m.py", text).functions[1]
    assert may_freeze(facts, "net", frozenset(methods)) is expected


@pytest.mark.parametrize(("calls", "said"), [(1, True), (3, True), (4, False)])
def test_a_name_that_a_function_above_got_frozen_is_a_doubt(calls: int, said: bool) -> None:
    text = (
        "import torch\nfrom torch import nn\n\n\ndef load(path):\n    teacher = nn.Linear(512, 512)\n"
        "    teacher.load_state_dict(torch.load(path))\n    teacher.requires_grad_(False)\n    return teacher\n\n\n"
        "def main(path, loader):\n    teacher = load(path)\n    step0(loader, teacher)\n\n\n"
        + "".join(f"def step{one}(loader, teacher):\n    step{one + 1}(loader, teacher)\n\n\n" for one in range(calls))
        + f"def step{calls}(loader, teacher):\n    for x in loader:\n        print(teacher(x.cuda()).argmax(1))\n"
    )
    (found,) = alarms({"m.py": text}, "TML201", "low")
    assert ("as another function freezes those of a `teacher`" in found.unless) is said
