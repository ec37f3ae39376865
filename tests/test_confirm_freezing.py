"""Which line around a flagged function may freeze all that its forward trains."""

from __future__ import annotations

import ast

import pytest

from torchmemlint.confirm.freezing import frozen_near

CLASS = """\
class Learner:
    def __init__(self, net, teacher, head):
        self.net, self.teacher, self.head = net, teacher, head
        {init}

    def evaluate(self, x):
        return self.net(x)

    def encode(self, x):
        return self.net.body(x)

    {method}
"""


def near(init: str, forward: str, method: str = "pass", modules: dict[str, str] | None = None) -> str:
    tree = ast.parse(CLASS.replace("{init}", init).replace("{method}", method))
    return frozen_near(tree, "Learner.evaluate", forward, {name: ast.parse(text) for name, text in (modules or {}).items()})


@pytest.mark.parametrize(
    ("init", "forward", "words"),
    [
        ("pass", "self.net", ""),
        ("for p in self.net.parameters(): p.requires_grad = False", "self.net", "line 4 freezes parameters of `self.net`"),
        ("for n, p in self.net.named_parameters(): p.requires_grad_(False)", "self.net", "`self.net`"),
        ("for i, p in enumerate(self.net.parameters()): p.requires_grad = False", "self.net", "`self.net`"),
        ("self.net.requires_grad_(False)", "self.net", "`self.net`"),
        ("self.net.requires_grad_(False)", "self.net.body", "`self.net`"),
        ("self.net.requires_grad_(False)", "self.encode", "`self.net`"),
        ("self.requires_grad_(False)", "self.net", "`self`"),
        # another network
        ("for p in self.teacher.parameters(): p.requires_grad = False", "self.net", ""),
        ("self.teacher.requires_grad_(False)", "self.net", ""),
        # a part of it: the others have gradients
        ("self.net.body.requires_grad_(False)", "self.net", ""),
        ("for n, p in self.net.named_parameters():\n            if 'head' not in n: p.requires_grad = False", "self.net", ""),
        ("self.net.head.weight.requires_grad = False", "self.net", ""),
        # what is asked there is no parameter: all of them or none
        ("for p in self.net.parameters():\n            if net: p.requires_grad = False", "self.net", "`self.net`"),
        # nobody knows what it is
        ("for p in head: p.requires_grad = False", "self.net", "line 4 freezes parameters"),
        ("self.teacher.requires_grad_(False)", "", "`self.teacher`"),
    ],
)
def test_what_may_be_frozen_is_named(init: str, forward: str, words: str) -> None:
    found = near(init, forward)
    assert words in found
    assert bool(words) == bool(found)


FREEZE = "def freeze(module):\n    for p in module.parameters():\n        p.requires_grad = False\n"


def test_functions_of_the_project_freeze_what_they_are_given() -> None:
    assert near("freeze(self.net)", "self.net", modules={"util": FREEZE}) == "line 4 freezes parameters of `self.net`"
    assert near("freeze(self.teacher)", "self.net", modules={"util": FREEZE}) == ""
    assert near("freeze(module=self.net)", "self.net", modules={"util": FREEZE})


def test_methods_freeze_their_receiver() -> None:
    net = "class Net:\n    def freeze(self):\n        self.requires_grad_(False)\n    def freeze_body(self):\n        self.body.requires_grad_(False)\n"
    assert near("self.net.freeze()", "self.net", modules={"nets": net})
    assert near("self.teacher.freeze()", "self.net", modules={"nets": net}) == ""
    assert near("self.net.freeze_body()", "self.net", modules={"nets": net}) == ""


def test_a_name_stands_for_what_it_is_set_to() -> None:
    text = "teacher.requires_grad_(False)\nstudent.train()\n\n\ndef evaluate(model, x):\n    net = model\n    return net(x)\n\n\nevaluate({}, x)\n"
    assert frozen_near(ast.parse(text.format("teacher")), "evaluate", "model", {}) == "line 1 freezes parameters of `teacher`"
    assert frozen_near(ast.parse(text.format("student")), "evaluate", "model", {}) == ""
