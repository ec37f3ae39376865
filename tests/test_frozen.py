"""What a function does to a network that it calls by a name: may it leave all of its parameters frozen?"""

import pytest

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
