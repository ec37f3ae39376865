"""Programs that are easy to write, or to generate, and that ask much of an analysis: each shape at any size.

A shape is a function from a size to files. Sizes are about lines; what grows is what the shape is named for. All of them train,
or store what a model gives, so that the analysis looks at them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Files = dict[str, str]
Shape = Callable[[int], Files]
SHAPES: dict[str, Shape] = {}
"""Name → the shape. ``random_mix`` puts several together."""

HEADER = "import torch\nfrom torch import nn\n\n"
TRAIN = "def train(model, optimizer, loader, criterion, flag, x, y):\n    total = 0\n    kept = []\n"


def shape(make: Shape) -> Shape:
    SHAPES[make.__name__] = make
    return make


def one(lines: Iterable[str], header: str = HEADER) -> Files:
    return {"a.py": header + "\n".join(lines) + "\n"}


def trained(lines: Iterable[str], depth: int = 2) -> Files:
    """The lines in the loop of a training function (or, with a depth of 1, in its body)."""
    indent = "    " * depth
    loop = "    for x, y in loader:\n" if depth == 2 else ""
    body = "\n".join(indent + line for line in lines)
    end = f"\n{indent}loss = criterion(model(x), y)\n{indent}loss.backward()\n{indent}total = total + loss\n    return total\n"
    return {"a.py": HEADER + TRAIN + loop + body + end}


# --- statements ---------------------------------------------------------------------------------------------------------


@shape
def sums_in_loop(n: int) -> Files:
    lines = ["s = 0", "out = []"]
    for i in range(n // 3):
        lines += [f"y{i} = model(x)", f"s = s + y{i}", "out.append(s)"]
    return trained(lines)


@shape
def sums_from_outside(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"y{i} = model(x)", f"s = s + y{i}", "out.append(s)"]
    return {"a.py": trained(lines)["a.py"].replace("    total = 0\n", "    total = s = 0\n    out = []\n", 1)}


@shape
def sums_without_loop(n: int) -> Files:
    lines = ["s = 0", "out = []"]
    for i in range(n // 3):
        lines += [f"y{i} = model(x)", f"s = s + y{i}", "out.append(s)"]
    return trained(lines, 1)


@shape
def chain(n: int) -> Files:
    return trained(["v0 = x", *(f"v{i + 1} = torch.relu(v{i}) * 2" for i in range(n))])


@shape
def chain_of_models(n: int) -> Files:
    return trained(["v0 = x", *(f"v{i + 1} = self.m{i}(v{i}, x)" for i in range(n))])


@shape
def plain_assignments(n: int) -> Files:
    return trained([f"c{i} = {i}" for i in range(n)])


@shape
def many_totals(n: int) -> Files:
    names = [f"t{i} = 0" for i in range(n // 2)]
    text = HEADER + TRAIN + "".join(f"    {name}\n" for name in names) + "    for x, y in loader:\n        out = model(x)\n"
    return {"a.py": text + "".join(f"        t{i} += criterion(out, y)\n" for i in range(n // 2)) + "    t0.backward()\n"}


@shape
def rejoining_branches(n: int) -> Files:
    lines = []
    for i in range(n // 4):
        lines += [f"if flag > {i}:", f"    a{i} = model(x)", "else:", f"    a{i} = criterion(x, y)"]
    return trained(lines)


@shape
def branches_over_sum(n: int) -> Files:
    lines = ["s = 0"]
    for i in range(n // 2):
        lines += [f"if flag > {i}:", "    s = s + model(x)"]
    return trained(lines)


@shape
def long_elif(n: int) -> Files:
    lines = ["if flag == 0:", "    z = model(x)"]
    for i in range(1, n // 2):
        lines += [f"elif flag == {i}:", f"    z = model(x, {i})"]
    return trained(lines)


@shape
def match_cases(n: int) -> Files:
    lines = ["match flag:"]
    for i in range(n // 2):
        lines += [f"    case {i}:", f"        w{i} = model(x)"]
    return trained(lines)


@shape
def try_body(n: int) -> Files:
    lines = ["try:", *(f"    b{i} = model(x)" for i in range(n)), "except RuntimeError:", "    torch.cuda.empty_cache()"]
    return trained(lines)


@shape
def many_tries(n: int) -> Files:
    lines = []
    for i in range(n // 4):
        lines += ["try:", f"    b{i} = model(x)", "except RuntimeError as error:", f"    b{i} = x"]
    return trained(lines)


@shape
def nested_loops(n: int) -> Files:
    lines = []
    for _ in range(n // 12):
        for depth in range(9):
            lines.append("    " * depth + f"for i{depth} in range(3):")
        lines += ["    " * 9 + "z = model(x)", "    " * 9 + "total = total + z", "    " * 9 + "kept.append(total)"]
    return trained(lines)


@shape
def deep_nesting(n: int) -> Files:
    lines = []
    for _ in range(max(1, n // 19)):
        lines += ["    " * depth + "for i in range(3):" for depth in range(17)]
        lines += ["    " * 17 + "z = model(x)", "    " * 17 + "kept.append(z)"]
    return trained(lines)


@shape
def loops_in_a_row(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"for k{i} in range(9):", f"    r{i} = model(x)", f"    kept.append(r{i})"]
    return trained(lines)


@shape
def literal_loops(n: int) -> Files:
    lines = []
    for i in range(n // 4):
        lines += ["for phase in ['train', 'val', 'test']:", "    for part in ['a', 'b', 'c']:"]
        lines += [f"        q{i} = model(x, phase)", f"        kept.append(q{i})"]
    return trained(lines)


@shape
def with_items(n: int) -> Files:
    items = ", ".join(f"open('f{i}') as f{i}" for i in range(n))
    return trained([f"with torch.enable_grad(), {items}:", "    kept.append(model(x))"])


@shape
def with_blocks(n: int) -> Files:
    lines = []
    for i in range(n // 2):
        lines += ["with torch.no_grad():", f"    n{i} = model(x)"]
    return trained(lines)


@shape
def appended(n: int) -> Files:
    return trained([f"kept.append(model(x, {i}))" for i in range(n)])


@shape
def stored_by_key(n: int) -> Files:
    return trained(["d = {}", *(f"d['k{i}'] = model(x)" for i in range(n)), "kept.append(d)"])


@shape
def stored_by_key_outside(n: int) -> Files:
    files = trained([f"d['k{i}'] = d['k{i}'] + model(x)" for i in range(n)])
    return {"a.py": files["a.py"].replace("    total = 0\n", "    total = 0\n    d = {}\n", 1)}


@shape
def attributes_set(n: int) -> Files:
    body = "".join(f"            self.a{i} = self.net(x)\n" for i in range(n))
    text = HEADER + "class T(nn.Module):\n    def fit(self, loader):\n        for x in loader:\n" + body
    return {
        "a.py": text + "            loss = self.loss(self.a0)\n            loss.backward()\n            self.total += loss\n"
    }


@shape
def concatenated(n: int) -> Files:
    return trained([*(f"g{i} = x" for i in range(n // 2)), *(f"g{i} = torch.cat([g{i}, model(x)])" for i in range(n // 2))])


@shape
def backwards(n: int) -> Files:
    lines = []
    for i in range(n // 2):
        lines += [f"l{i} = criterion(model(x), y)", f"l{i}.backward()"]
    return trained(lines)


@shape
def backward_of_sum(n: int) -> Files:
    lines = ["s = 0"]
    for i in range(n // 2):
        lines += [f"s = s + criterion(model(x), {i})", "s.backward(retain_graph=True)"]
    return trained(lines)


@shape
def deleted(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"h{i} = model(x)", f"kept.append(h{i})", f"del h{i}"]
    return trained(lines)


@shape
def imports_in_function(n: int) -> Files:
    return trained([f"import torch.m{i} as m{i}" for i in range(n)])


@shape
def returns(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"if flag == {i}:", f"    e{i} = model(x)", f"    return e{i}"]
    return trained(lines)


@shape
def continues(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"if flag == {i}:", f"    e{i} = model(x)", "    continue" if i % 2 else "    break"]
    return trained(lines)


@shape
def unpacked_loop(n: int) -> Files:
    return trained([f"a, b = model(a, b, {i})" if i else "a = b = x" for i in range(n)])


@shape
def parts_of_parts(n: int) -> Files:
    return trained(["p = model(x)", *(f"p{i} = p[{i}][0]['k']" for i in range(n))])


@shape
def linked_list(n: int) -> Files:
    return trained(["p = x", *("p = p.next.left" for _ in range(n)), "kept.append(p)"])


@shape
def pairs_of_pairs(n: int) -> Files:
    return trained(["p = (x, x)", *("p = (p, model(p))" for _ in range(n)), "kept.append(p)"])


@shape
def lists_in_lists(n: int) -> Files:
    return trained(["p = [x]", *("p = [p, model(x), p]" for _ in range(n)), "kept.append(p)"])


@shape
def swapped(n: int) -> Files:
    return trained([f"a{i}, a{i + 1} = model(a{i + 1}), model(a{i})" for i in range(n)])


# --- expressions --------------------------------------------------------------------------------------------------------


@shape
def wide_tuple(n: int) -> Files:
    names = ", ".join(f"u{i}" for i in range(n))
    return trained([f"{names} = model(x)", f"w = ({names})", "kept.append(w)"])


@shape
def wide_call(n: int) -> Files:
    return trained([f"o = model({', '.join(f'x{i}' for i in range(n))})", "kept.append(o)"])


@shape
def wide_sum(n: int) -> Files:
    return trained([f"o = {' + '.join('model(x)' for _ in range(min(n, 400)))}" for _ in range(max(1, n // 400))])


@shape
def chained_calls(n: int) -> Files:
    return trained([f"o = x{'.relu()' * 60}" for _ in range(n // 20)])


@shape
def deep_attributes(n: int) -> Files:
    return trained([f"o = x{''.join(f'.a{i}' for i in range(80))}(x)" for _ in range(n // 20)])


@shape
def deep_subscripts(n: int) -> Files:
    return trained([f"o{k} = x{''.join(f'[{i}]' for i in range(80))} + model(x)" for k in range(n // 20)])


@shape
def conditionals(n: int) -> Files:
    lines = []
    for i in range(max(1, n // 10)):
        text = "x"
        for k in range(40):
            text = f"(model(x) if flag == {k} else {text})"
        lines.append(f"o{i} = {text}")
    return trained(lines)


@shape
def booleans(n: int) -> Files:
    return trained([f"o{i} = {' or '.join(f'model(x, {k})' for k in range(60))}" for i in range(max(1, n // 20))])


@shape
def comparisons(n: int) -> Files:
    return trained([f"o{i} = {' < '.join('model(x)' for k in range(100))}" for i in range(max(1, n // 20))])


@shape
def string_concatenation(n: int) -> Files:
    return trained([f"s = {' + '.join(repr('x' * 40) for _ in range(min(n, 400)))}" for _ in range(max(1, n // 400))])


@shape
def string_literals(n: int) -> Files:
    literals = "\n".join(f"    'line {i} of a long text'" for i in range(n))
    return {"a.py": HEADER + f"TEXT = (\n{literals}\n)\n\n" + trained([])["a.py"]}


@shape
def f_strings(n: int) -> Files:
    return trained([f"print(f'{' '.join(f'{{model(x)[{k}]}}' for k in range(10))}')" for _ in range(n)])


@shape
def dict_display(n: int) -> Files:
    return trained(["d = {", *(f"    'k{i}': model(x)," for i in range(n)), "}", "kept.append(d)"])


@shape
def dict_display_at_top(n: int) -> Files:
    return {"a.py": HEADER + "D = {\n" + "".join(f"    'k{i}': {i},\n" for i in range(n)) + "}\n\n" + trained([])["a.py"]}


@shape
def dict_of_lists(n: int) -> Files:
    lines = ["d = {", *(f"    'k{i}': []," for i in range(n // 2)), "}"]
    body = [f"d['k{i}'].append(model(x))" for i in range(n // 2)]
    files = trained(body)
    return {"a.py": files["a.py"].replace("    total = 0\n", "    total = 0\n" + "".join(f"    {e}\n" for e in lines), 1)}


@shape
def list_display(n: int) -> Files:
    return trained(["d = [", *("    model(x)," for _ in range(n)), "]", "kept.append(d)"])


@shape
def comprehensions(n: int) -> Files:
    return trained([f"o{i} = [[[model(z) for z in y] for y in x] for x in loader]" for i in range(n)])


@shape
def deep_comprehension(n: int) -> Files:
    lines = []
    for i in range(max(1, n // 10)):
        text = "model(x)"
        for _ in range(12):
            text = f"[{text} for x in x]"
        lines.append(f"o{i} = {text}")
    return trained(lines)


@shape
def lambdas(n: int) -> Files:
    return trained([f"f{i} = lambda z: model(z) + f{max(i - 1, 0)}(z)" for i in range(n)])


@shape
def parentheses(n: int) -> Files:
    return trained([f"o = {'(' * 60}x{')' * 60}" for _ in range(n // 10)])


@shape
def deep_unary(n: int) -> Files:
    return trained([f"o = {'-' * 90}model(x)" for _ in range(n // 10)])


# --- functions ----------------------------------------------------------------------------------------------------------


@shape
def small_functions(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"def f{i}(model, x):", "    model(x).sum().backward()", ""]
    return one(lines)


@shape
def evaluating_functions(n: int) -> Files:
    lines = []
    for i in range(n // 6):
        lines += [f"def validate_{i}(model, loader):", "    out = []", "    for x in loader:"]
        lines += ["        out.append(model(x))", "    return out", ""]
    return one(lines)


@shape
def functions_in_a_chain(n: int) -> Files:
    lines = []
    for i in range(n // 4):
        lines += [f"def f{i}(model, x):", "    z = model(x)", f"    return f{i + 1}(model, x) + z", ""]
    return one([*lines, f"def f{n // 4}(model, x):", "    return model(x)", "", *trained(["f0(model, x)"])["a.py"].split("\n")])


@shape
def functions_in_a_tree(n: int) -> Files:
    lines = []
    count = n // 5
    for i in range(count):
        lines += [f"def f{i}(model, x):"]
        lines += [f"    a = f{min(3 * i + k, count)}(model, x)" for k in (1, 2, 3)]
        lines += ["    return a", ""]
    lines += [f"def f{count}(model, x):", "    return model(x)", ""]
    return one([*lines, *trained(["total = total + f0(model, x)"])["a.py"].split("\n")])


@shape
def functions_that_call_all(n: int) -> Files:
    lines = []
    for i in range(n // 8):
        lines += [f"def f{i}(model, x):", "    loss = model(x).sum()", "    loss.backward()"]
        lines += [f"    f{(7 * i + k * 13) % (n // 8)}(model, loss)" for k in range(4)] + [""]
    return one(lines)


@shape
def recursion(n: int) -> Files:
    lines = []
    for i in range(n // 7):
        lines += [f"def f{i}(model, x, depth):", "    if depth:", f"        return f{i}(model, x[0], depth - 1)"]
        lines += ["    loss = model(x)", "    loss.backward()", "    return loss", ""]
    return one(lines)


@shape
def many_callers(n: int) -> Files:
    lines = ["def helper(model, x):", "    return model(x)", ""]
    for i in range(n // 4):
        lines += [f"def g{i}(model, x):", f"    loss = helper(model, x) + {i}", "    loss.backward()", ""]
    return one(lines)


@shape
def callers_of_validate(n: int) -> Files:
    lines = ["def validate(model, loader):", "    return [model(x) for x in loader]", ""]
    for i in range(n // 4):
        lines += [f"def run{i}(model, loader):", "    out = validate(model, loader)", f"    print(out, {i})", ""]
    return one(lines)


@shape
def closures(n: int) -> Files:
    lines = []
    for i in range(n // 2):
        lines += [f"def inner{i}(z):", "    return model(z) + total"]
    return trained(lines)


@shape
def closures_called(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"def inner{i}(z):", "    return model(z) + total", f"kept.append(inner{i}(x))"]
    return trained(lines)


@shape
def nested_closures(n: int) -> Files:
    lines = []
    for i in range(n // 30):
        for depth in range(14):
            lines.append("    " * depth + f"def inner{i}_{depth}(z):")
        lines.append("    " * 14 + "return model(z)")
        lines += ["    " * depth + f"return inner{i}_{depth}(z)" for depth in range(13, 0, -1)]
        lines.append(f"inner{i}_0(x)")
    return trained(lines)


@shape
def one_callee_often(n: int) -> Files:
    helper = ["def helper(model, x, kept):", "    z = model(x)", "    kept.append(z)", "    return z", ""]
    files = trained([f"h{i} = helper(model, x, kept)" for i in range(n)])
    return {"a.py": HEADER + "\n".join(helper) + "\n" + files["a.py"]}


@shape
def generators(n: int) -> Files:
    lines = []
    for i in range(n // 4):
        lines += [f"def g{i}(model, loader):", "    for x in loader:", "        yield model(x)", ""]
    return one([*lines, *trained([f"kept.append(list(g{i}(model, loader)))" for i in range(n // 4)])["a.py"].split("\n")])


@shape
def decorators(n: int) -> Files:
    lines = []
    for i in range(n // 20):
        lines += [f"@dec{k}" for k in range(16)] + [f"def f{i}(model, x):", "    model(x).sum().backward()", ""]
    return one(lines)


@shape
def decorated_once(n: int) -> Files:
    lines = [f"@torch.no_grad() if {i} else dec" for i in range(n)]
    return one([*lines, "def f(model, x):", "    return model(x)"])


@shape
def many_parameters(n: int) -> Files:
    params = ", ".join(f"p{i}=None" for i in range(n))
    return one([f"def f(model, x, {params}):", "    model(x).sum().backward()", *(f"    p{i} = model(p{i})" for i in range(n))])


@shape
def statements_at_top(n: int) -> Files:
    lines = ["model = nn.Linear(1, 1)", "total = 0", "x = torch.ones(1)"]
    for i in range(n // 3):
        lines += [f"loss{i} = model(x)", f"loss{i}.sum().backward()", f"total = total + loss{i}"]
    return one(lines)


# --- classes ------------------------------------------------------------------------------------------------------------


@shape
def many_bases(n: int) -> Files:
    lines = []
    for i in range(n // 2):
        lines += [f"class B{i}(nn.Module): pass", ""]
    bases = ", ".join(f"B{i}" for i in range(n // 2))
    body = ["    def fit(self, x):", "        loss = self.net(x)", "        loss.backward()", "        self.total += loss"]
    return one([*lines, f"class C({bases}):", *body])


@shape
def class_chain(n: int) -> Files:
    lines = ["class C0(nn.Module):", "    pass", ""]
    for i in range(1, n // 5):
        lines += [
            f"class C{i}(C{i - 1}):",
            f"    def fit{i}(self, x):",
            "        loss = self.net(x)",
            "        loss.backward()",
        ]
        lines += ["        self.total += loss"]
    return one(lines)


@shape
def class_diamonds(n: int) -> Files:
    lines = ["class D0(nn.Module):", "    pass", ""]
    for i in range(1, n // 9):
        lines += [f"class L{i}(D{i - 1}): pass", f"class R{i}(D{i - 1}): pass", f"class D{i}(L{i}, R{i}):"]
        lines += [
            "    def fit(self, x):",
            "        loss = self.net(x)",
            "        loss.backward()",
            "        self.total += loss",
            "",
        ]
    return one(lines)


@shape
def many_methods(n: int) -> Files:
    lines = ["class M(nn.Module):"]
    for i in range(n // 5):
        lines += [f"    def m{i}(self, x):", "        loss = self.net(x)", f"        self.m{(i * 7) % (n // 5)}(loss)"]
        lines += ["        loss.backward()", f"        self.t{i} += loss"]
    return one(lines)


@shape
def many_subclasses(n: int) -> Files:
    lines = ["class Base(nn.Module):", "    def run(self, x):", "        return self.step(x)", ""]
    for i in range(n // 5):
        lines += [f"class S{i}(Base):", "    def step(self, x):", "        self.total += self.net(x)"]
        lines += ["        self.total.backward()", ""]
    return one(lines)


@shape
def many_attributes(n: int) -> Files:
    lines = ["class M(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        self.l{i} = nn.Linear(1, 1)" for i in range(n // 2)]
    lines += ["    def forward(self, x):", *(f"        x = self.l{i}(x)" for i in range(n // 2)), "        return x"]
    return one([*lines, "", *trained(["model = M()", "kept.append(model(x))"])["a.py"].split("\n")])


@shape
def nested_classes(n: int) -> Files:
    lines = []
    for i in range(n // 24):
        lines += ["    " * depth + f"class C{i}_{depth}(nn.Module):" for depth in range(20)]
        lines += ["    " * 20 + "def fit(self, x):", "    " * 21 + "self.t += self.net(x)", "    " * 21 + "self.t.backward()"]
    return one(lines)


# --- several files ------------------------------------------------------------------------------------------------------


def files_of(n: int, each: int) -> int:
    return max(2, min(n // each, 400))


@shape
def star_ring(n: int) -> Files:
    count = files_of(n, 8)
    step = "    loss = model(x)\n    loss.backward()\n    return name_of_nothing\n"
    return {f"m{i}.py": f"import torch\nfrom m{(i + 1) % count} import *\n\ndef f{i}(model, x):\n{step}" for i in range(count)}


@shape
def star_everything(n: int) -> Files:
    count = files_of(n, 40)
    stars = "".join(f"from m{i} import *\n" for i in range(count))
    body = "    loss = model(x)\n    loss.backward()\n    return unknown_name(loss)\n"
    return {f"m{i}.py": f"import torch\n{stars}\ndef f{i}(model, x):\n{body}" for i in range(count)}


@shape
def recursion_across_files(n: int) -> Files:
    count = files_of(n, 7)
    out = {}
    for i in range(count):
        after = (i + 1) % count
        body = f"    loss = m{after}.f{after}(model, x)\n    loss.backward()\n    return loss\n"
        out[f"m{i}.py"] = f"import torch\nimport m{after}\n\ndef f{i}(model, x):\n{body}"
    return out


@shape
def reexports(n: int) -> Files:
    count = files_of(n, 6)
    out = {"m0.py": "import torch\n\ndef helper(model, x):\n    return model(x)\n"}
    for i in range(1, count):
        body = "    loss = helper(model, x)\n    loss.backward()\n"
        out[f"m{i}.py"] = f"import torch\nfrom m{i - 1} import helper\n\ndef f{i}(model, x):\n{body}"
    return out


@shape
def class_ring(n: int) -> Files:
    count = files_of(n, 7)
    out = {}
    for i in range(count):
        after = (i + 1) % count
        body = "    def fit(self, x):\n        loss = self.net(x)\n        loss.backward()\n        self.total += loss\n"
        out[f"m{i}.py"] = f"import torch\nfrom m{after} import C{after}\n\nclass C{i}(C{after}):\n{body}"
    return out


# --- fixes ------------------------------------------------------------------------------------------------------------


@shape
def totals_of_one_loss(n: int) -> Files:
    starts = "".join(f"    t{i} = 0\n" for i in range(n // 2))
    step = "    for x, y in loader:\n        loss = criterion(model(x), y)\n        loss.backward()\n"
    return {"a.py": HEADER + TRAIN + starts + step + "".join(f"        t{i} += loss\n" for i in range(n // 2))}


@shape
def names_bound_to_each_other(n: int) -> Files:
    return trained([f"v{i % 3} = v{(i + 1) % 3} + v{(i + 2) % 3}" if i % 5 else f"v{i % 3}, v1 = model(v0)" for i in range(n)])


@shape
def gradients_zeroed(n: int) -> Files:
    return trained(f"opts[{i}].zero_grad(set_to_none=False)" for i in range(n))


@shape
def checkpoints_loaded(n: int) -> Files:
    lines = []
    for i in range(n // 3):
        lines += [f"m{i} = Net().cuda()", f"c{i} = torch.load(x)", f"m{i}.load_state_dict(c{i})"]
    return trained(lines, 1)


@shape
def functions_that_evaluate(n: int) -> Files:
    """What each returns is followed into one long function, through nested loops."""
    count = n // 8
    net = "class Net(nn.Module):\n    def forward(self, x):\n        return x\n\nnet = Net()\n"
    one_of = "def predict_{i}(x):\n    net.eval()\n    out = net(x)\n    print(out.argmax())\n    return out\n"
    calls = "".join(f"            a{i} = predict_{i}(x)\n            print(a{i}.argmax())\n" for i in range(count))
    header = "def main(loader):\n    for x in loader:\n        for y in x:\n"
    return one([net, *(one_of.format(i=i) for i in range(count)), header + calls])


# --- mixtures -----------------------------------------------------------------------------------------------------------

STATEMENTS = (
    "v{a} = model(v{b})", "v{a} = v{b} + v{c}", "kept.append(v{a})", "total += v{a}", "v{a} = (v{b}, v{c})", "d['k{a}'] = v{b}",
    "v{a} = d['k{b}']", "v{a} = kept[{b}]", "v{a}, v{b} = model(v{c})", "v{a} = v{b}.next", "d = dict(d, k{a}=v{b})", "v{a} = [v{b}, v{c}]",
    "v{a} = torch.cat([v{a}, v{b}])", "v{a} = v{b}.detach()", "v{a}.backward()", "self.t{a} = v{b}", "v{a} = self.t{b}(v{c})",
    "v{a} = lambda z: model(z, v{b})", "v{a} = [model(z) for z in v{b}]", "v{a} = f(model, v{b})", "kept = kept + [v{a}]",
    "v{a} = v{b} if flag else v{c}", "v{a} = {{'a': v{b}, **v{c}}}", "del v{a}", "v{a} = sum(kept)", "kept[{a}] = v{b}",
)  # fmt: skip
OPENERS = (
    "for x, y in loader:", "while flag:", "if flag == {a}:", "with torch.no_grad():", "try:", "for k, v{a} in d.items():",
    "def f(model, z):", "for v{a} in kept:", "if v{a} is not None:",
)  # fmt: skip


def random_mix(seed: int, n: int) -> Files:
    """A function of ``n`` lines of all sorts, the same for the same seed: few or many names, flat or deep."""
    chance = random.Random(seed)
    names = chance.choice((3, 10, 40, 200, n))
    statements = chance.sample(STATEMENTS, chance.randint(2, len(STATEMENTS)))
    openers = chance.sample(OPENERS, chance.randint(1, len(OPENERS)))
    opening = chance.choice((0.02, 0.1, 0.3))
    deepest = chance.choice((1, 3, 8))
    lines: list[str] = []
    trying: list[int] = []
    depth = 0

    def filled(text: str) -> str:
        return text.format(a=chance.randrange(names), b=chance.randrange(names), c=chance.randrange(names))

    while len(lines) < n:
        if depth < deepest and chance.random() < opening:
            opener = filled(chance.choice(openers))
            lines.append("    " * depth + opener)
            if opener == "try:":
                trying.append(depth)
            depth += 1
        lines.append("    " * depth + filled(chance.choice(statements)))
        while depth and chance.random() < opening:
            depth -= 1
            if trying and trying[-1] == depth:
                trying.pop()
                lines += ["    " * depth + "except RuntimeError:", "    " * depth + "    " + filled(chance.choice(statements))]
    while trying:
        depth = trying.pop()
        lines += ["    " * depth + "except RuntimeError:", "    " * depth + "    pass"]
    return trained(["d = {}", "v0 = x", *lines], chance.choice((1, 2)))
