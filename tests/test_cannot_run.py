"""Why code does not run, one reason at a time, and what only looks like it. ``fixtures/TML201`` has whole programs."""

from __future__ import annotations

import pytest
from gaps import alarms

from torchmemlint.findings import Severity

NETS = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 512, 3)
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))
"""
PROGRAM = """\
import torch
from nets import Net
{above}
def evaluate(net: Net, loader):
    net.eval()
    {before}
    for images in loader:
        print(net(images.cuda()).argmax(1))

if __name__ == "__main__":
    evaluate(Net().cuda(), torch.zeros(4, 2, 3, 8, 8))
"""


def reason(above: str = "", before: str = "pass", **more: str) -> str:
    """What the cost of the one finding in ``evaluate`` ends in; "" where it is no note."""
    before = before.replace("\n", "\n    ")
    files = {"nets.py": NETS, "train.py": PROGRAM.format(above=above, before=before)}
    files |= {f"{name.replace('__', '/')}.py": text for name, text in more.items()}
    (found,) = [one for one in alarms(files, "TML201") if one.path.endswith("train.py") and one.function == "evaluate"]
    return found.cost.rpartition("; ")[2] if found.severity is Severity.NOTE else ""


def test_nothing_is_wrong() -> None:
    assert reason() == ""


@pytest.mark.parametrize(
    ("above", "before", "words"),
    [
        ("", "limit + 1", "it cannot run: nothing defines `limit`, which it reads"),
        ("def set_it():\n    global limit\n    limit = 3", "limit + 1", ""),
        ("limit: int", "limit + 1", ""),
        ("class limit: pass", "limit + 1", ""),
        ("", "if (limit := 3) and limit: pass", ""),
        ("", "print(f'{limit}')", "it cannot run: nothing defines `limit`, which it reads"),
        ("", "def inner(): return limit", ""),
        ("", "del loader[limit]", ""),
        ("", "if loader is None and limit: pass", ""),
        ("", "x = [limit for limit in loader]", ""),
        ("", "try: limit\nexcept NameError: pass", ""),
        ("", "with torch.no_grad(): limit", ""),
        ("", "later = lambda: limit", ""),
        ("import torch.nn as limit", "limit.Linear", ""),
        ("for limit in range(3): pass", "limit + 1", ""),
        ("globals()['limit'] = 3", "limit + 1", ""),
        ("vars()['limit'] = 3", "limit + 1", ""),
        ("import sys; setattr(sys.modules[__name__], 'a' + 'b', 3)", "limit + 1", ""),
        ("def fill(module): setattr(module, 'limit', 3)", "limit + 1", ""),
        ("", "display(loader)", ""),
        ("from elsewhere import *", "limit + 1", ""),
        ("import builtins; builtins.limit = 3", "limit + 1", ""),
        ("", "print(unicode('a'))", "written for Python 2, which had `unicode`"),
        ("import sys", "print(sys.maxint)", "written for Python 2, which had `sys.maxint`"),
        ("import sys", "print(sys.maxsize)", ""),
        ("import cPickle", "pass", "written for Python 2, which had `cPickle`"),
        ("try: import cPickle\nexcept ImportError: import pickle as cPickle", "pass", ""),
        ("from urllib import urlencode", "pass", "written for Python 2, which had `urllib.urlencode`"),
        ("from urllib.parse import urlencode", "pass", ""),
        ("from torch.utils.ffi import create_extension", "pass", "written for torch before 1.0, which had `torch.utils.ffi`"),
    ],
)
def test_names(above: str, before: str, words: str) -> None:
    assert reason(above, before) == words


STARS = "from more import *"


@pytest.mark.parametrize("more", ["limit = 3", "from elsewhere import *", "exec('limit = 3')"])
def test_names_that_a_star_import_may_give(more: str) -> None:
    assert reason(STARS, "limit + 1", more=f"import torch\n{more}\n") == ""


@pytest.mark.parametrize(
    ("above", "before", "words"),
    [
        ("", "log = None\ntry: import log\nexcept ImportError: pass\nif log is None: return", ""),
        ("", "log = None\nfor log in loader: pass\nif log is None: return", ""),
        ("", "log = None\ndef fill():\n    nonlocal log\n    log = 3\nfill()\nif log is None: return", ""),
        ("log = None", "if log is None: return", "it is never reached: `log` is always None"),
        ("try: import log\nexcept ImportError: log = None", "if log is None: return", ""),
        ("log = None\nif torch.cuda.is_available(): log = 3", "if log is None: return", ""),
        ("log = None\nlog: int = 3", "if log is None: return", ""),
        ("log = None\nvars(torch)['a' + 'b'] = 3", "if log is None: return", ""),
        ("log = True", "if log: return", "it is never reached: `log` is always True"),
        ("log = True", "if not log: return", ""),
        ("log = 'here'", "if log == 'here': return", "it is never reached: `log` is always 'here'"),
        ("log = 'here'", "if log == 'there': return", ""),
        ("log = 'here'", "if 'ere' in log: return", ""),
        ("log = 3", "if log > 2: return", "it is never reached: `log` is always 3"),
        ("log = 3", "if log > 3: return", ""),
        ("log, more = 3, 4", "if log > 2: return", "it is never reached: `log` is always 3"),
        ("log = 3\nmore = 4", "if log > 2 and more > 2: return", "it is never reached: `log` is always 3"),
        ("log = 3\nmore = 4", "if log > 2 and more > 4: return", ""),
        ("log = 3\nlog += 1", "if log > 2: return", ""),
        ("log = 3\nfor log in range(9): pass", "if log > 2: return", ""),
        ("log = None\ndef fill(module, name): setattr(module, name, 3)", "if log is None: return", ""),
    ],
)
def test_constants(above: str, before: str, words: str) -> None:
    assert reason(above, before) == words


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("def other(): pass", "it cannot run: `helper` is imported, which is not there"),
        ("def helper(): pass", ""),
        ("if torch.cuda.is_available():\n    def helper(): pass", ""),
        ("def __getattr__(name): return name", ""),
        ("def fill():\n    global helper\n    helper = 3", ""),
        ("from elsewhere import *", ""),
        ("import sys\nsys.modules[__name__] = object()", ""),
        ("def (broken", ""),
    ],
)
def test_imports(more: str, words: str) -> None:
    assert reason("from more import helper", more=f"import torch\n{more}\n") == words


def test_a_file_above_that_has_the_name_of_a_library() -> None:
    above = {"datasets": "import torch\n", "nets": NETS}
    script = PROGRAM.format(above="from datasets import load", before="pass")
    files = {f"{name}.py": text for name, text in above.items()} | {"tools/nets.py": NETS, "tools/train.py": script}
    (found,) = [one for one in alarms(files, "TML201") if one.path.endswith("train.py")]
    assert found.severity is not Severity.NOTE


def test_a_folder_and_a_file_in_it_of_one_name() -> None:
    files = {"more__more": "import torch\n", "more__sizes": "import torch\nlimit = 3\n"}
    star = files | {"more__load": "import torch\nfrom more.sizes import *\nfrom more import sizes\n"}
    assert reason("from more.load import limit", **star) == ""


@pytest.mark.parametrize(
    ("above", "before", "words"),
    [
        ("def f(a, b=1, *, c=2): pass", "f(1, 2, 3)", "f"),
        ("def f(a, b=1, *, c=2): pass", "f(b=1)", "f"),
        ("def f(a, b=1, *, c=2): pass", "f(1, a=1)", "f"),
        ("def f(a, b=1, *, c=2): pass", "f(1, d=1)", "f"),
        ("def f(a, b=1, *, c): pass", "f(1)", "f"),
        ("def f(a, b=1, *, c=2): pass", "f(1, 2, c=3)", ""),
        ("def f(a, b=len('a')): pass", "f(1)", ""),
        ("def f(*a, **b): pass", "f(1, 2, c=3)", ""),
        ("def f(a): pass\ndef f(a, b): pass", "f(1, 2)", ""),
        ("def f(a): pass\nf = print", "f(1, 2)", ""),
        ("def f(a): pass\ndef g(h):\n    global f\n    f = h", "f(1, 2)", ""),
        ("from functools import partial\ndef g(a, b): pass\nf = partial(g, 1)", "f(1, 2, 3)", ""),
        ("import functools\n@functools.singledispatch\ndef f(a): pass", "f(1, 2)", ""),
        ("class f:\n    def __init__(self, a): pass", "f()", "f"),
        ("class f:\n    def __init__(self, a): pass", "f(1)", ""),
        ("class g(torch.utils.data.Dataset):\n    pass\nclass f(g):\n    def __init__(self, a): pass", "f(1, 2)", "f"),
        ("class f:\n    def __new__(cls, *a): return 1\n    def __init__(self, a): pass", "f()", ""),
        (
            "class g(type):\n    def __call__(cls, *a): return 1\nclass f(metaclass=g):\n    def __init__(self, a): pass",
            "f()",
            "",
        ),
        ("from dataclasses import dataclass\n@dataclass\nclass f:\n    a: int = 1", "f(1)", ""),
        ("class f(dict):\n    pass", "f(1, 2)", ""),
        ("class g:\n    def f(self, a): pass", "g.f(g(), 1)", ""),
        ("class g:\n    @staticmethod\n    def f(a): pass", "o = g()\no.f(1)", ""),
        ("class g:\n    f = print\n", "o = g()\no.f(1, 2)", ""),
    ],
)
def test_calls(above: str, before: str, words: str) -> None:
    assert reason(above, before) == (f"it cannot run: the call of `{words}(…)` does not fit its parameters" if words else "")


PARSER = """\
import argparse, yaml

def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", "-b", type=int)
    {more}
    return parser.parse_args()

def run(options):
    evaluate(Net().cuda(), torch.zeros(4, 2, 3, 8, 8), options)

"""
STARTS = PROGRAM.replace("loader):", "loader, args):").replace(
    "evaluate(Net().cuda(), torch.zeros(4, 2, 3, 8, 8))", "args = get_args()\n    run(args)"
)


@pytest.mark.parametrize(
    ("more", "before", "lacks"),
    [
        ("pass", "args.depth", True),
        ("pass", "args.batch_size", False),
        ("pass", "if loader is None: evaluate(net, loader, args)\nargs.depth", False),
        ("pass", "args.b", False),
        ("parser.add_argument('--depth')", "args.depth", False),
        ("parser.add_argument('--size', dest='depth')", "args.depth", False),
        ("parser.set_defaults(depth=3)", "args.depth", False),
        ("parser.add_subparsers(dest='depth')", "args.depth", False),
        ("group = parser.add_argument_group('a')\n    group.add_argument('--depth')", "args.depth", False),
        ("for name in yaml.load('a'): parser.add_argument(name)", "args.depth", False),
        ("parser.add_argument(*yaml.load('a'))", "args.depth", False),
        ("yaml.add_options(parser)", "args.depth", False),
        ("parser = argparse.ArgumentParser(parents=[yaml.parser])", "args.depth", False),
        ("parser = yaml.Parser()", "args.depth", False),
        ("if parser: return yaml.load('a')", "args.depth", False),
        ("if parser: return get_args()", "args.depth", False),
        ("pass", "args.depth = 3\nargs.depth", False),
        ("pass", "vars(args).update(yaml.load('a'))\nargs.depth", False),
        ("pass", "args.__dict__.update(yaml.load('a'))\nargs.depth", False),
        ("pass", "for name in yaml.load('a'): setattr(args, name, 1)\nargs.depth", False),
        ("pass", "args = yaml.load('a')\nargs.depth", False),
        ("pass", "if hasattr(args, 'depth') and args.depth: pass", False),
        ("pass", "args.__class__", False),
    ],
)
def test_options(more: str, before: str, lacks: bool) -> None:
    before = before.replace("\n", "\n    ")
    text = STARTS.format(above=PARSER.format(more=more), before=before)
    (found,) = [one for one in alarms({"nets.py": NETS, "train.py": text}, "TML201") if one.function == "evaluate"]
    assert (found.severity is Severity.NOTE) == lacks
    assert ("nothing defines `args.depth`" in found.cost) == lacks


@pytest.mark.parametrize(
    ("imported", "package", "words"),
    [
        ("from kit import Later\nLater()", "limit = 3", "it cannot run: `Later` is imported, which is not there"),
        ("from kit import Later\nLater()", "from kit.more import Later", ""),
        ("from kit import Later\nLater()", "from elsewhere import *", ""),
        ("from kit import later\nlater.run()", "limit = 3", ""),  # which may be generated, or compiled
        ("from kit import more\nmore.run()", "limit = 3", ""),
        ("from kit.less import Later\nLater()", "limit = 3", "it cannot run: `kit.less` is imported, which is not there"),
        ("from kit.less import later\nlater.run()", "limit = 3", ""),
        ("from kit.less import Later\nLater()", "from elsewhere import less", ""),
        ("from kit.less import Later\nLater()", "from setuptools import setup\nsetup(ext_modules=[])", ""),
        ("try: from kit.less import Later\nexcept ImportError: Later = print\nLater()", "limit = 3", ""),
    ],
)
def test_what_a_package_lacks(imported: str, package: str, words: str) -> None:
    kit = {"kit/__init__.py": f"import torch\n{package}\n", "kit/more.py": "import torch\nLater = print\n"}
    text = PROGRAM.format(above=imported, before="pass")
    (found,) = [one for one in alarms(kit | {"nets.py": NETS, "train.py": text}, "TML201") if one.path.endswith("train.py")]
    assert (found.severity is Severity.NOTE) == bool(words)
    assert words in found.cost


KIT = {"kit/__init__.py": "import torch\n", "kit/tools/__init__.py": "", "kit/tools/more.py": "import torch\nlimit = 3\n"}


@pytest.mark.parametrize(
    ("above", "is_note"),
    [
        ("from kit.tools.more import limit\nfrom kit.tools import Later\nLater()", True),
        ("from kit.tools import Later\nLater()", False),  # it may be another kit, which is installed
        ("from kit.tools.less import limit\nfrom kit.tools import Later\nLater()", False),
        ("from kit.tools.more import limit", False),
    ],
)
def test_a_package_in_a_folder_above(above: str, is_note: bool) -> None:
    files = KIT | {"scripts/a/nets.py": NETS, "scripts/a/train.py": PROGRAM.format(above=above, before="pass")}
    (found,) = [one for one in alarms(files, "TML201") if one.path.endswith("train.py")]
    assert (found.severity is Severity.NOTE) == is_note


@pytest.mark.parametrize(
    ("above", "more", "is_note"),
    [
        ("from tools.less import Later\nLater()", {}, True),
        ("from tools.less.still import Later\nLater()", {}, True),
        ("from tools.less import later\nlater.run()", {}, False),  # which may be compiled
        ("from tools.less import *", {}, True),
        ("from tools.more import *", {}, False),
        ("from foreign.less import *", {}, False),
        ("from tools.less import Later\nLater()", {"b/tools/less.py": "class Later: pass"}, False),
        ("from tools.less import Later\nLater()", {"b/tools/less/__init__.py": "class Later: pass"}, False),
        ("from tools.less.still import Later\nLater()", {"tools/less/still.py": "class Later: pass"}, False),
        ("import sys\nsys.path.append('../b')\nfrom tools.less import Later\nLater()", {}, False),
        ("from foreign.less import Later\nLater()", {"foreign/it/more.py": ""}, False),  # its code may be fetched apart
        ("from numpy.less import Later\nLater()", {"numpy/more.py": ""}, False),
        ("from email.less import Later\nLater()", {"email/more.py": ""}, False),
    ],
)
def test_a_module_that_no_folder_of_its_name_has(above: str, more: dict[str, str], is_note: bool) -> None:
    files = {
        "tools/more.py": "import torch\nlimit = 3\n",
        "a/nets.py": NETS,
        "a/train.py": PROGRAM.format(above=above, before="pass"),
    }
    (found,) = [one for one in alarms(files | more, "TML201") if one.path.endswith("train.py")]
    assert (found.severity is Severity.NOTE) == is_note


AGENT = """\
import torch
from nets import Net

class Agent:
    def __init__(self):
        self.net = Net().cuda()

    def evaluate(self, loader):
        self.net.eval()
        for images in loader:
            print(self.net(images.cuda()).argmax(1))

    def part(self, at):
        return {taken}
"""
RAISING = """\
class Later:
    def __init__(self): pass
    def size(self): raise NotImplementedError
    def all(self): self.size()
"""
CALLER = """\
import torch
from agent import Agent
{above}
def run(agent: Agent, loader):
    agent.evaluate(loader)

def main():
    agent, loader = Agent(), torch.zeros(4, 2, 3, 8, 8)
    {before}
    run(agent, loader)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("taken", "above", "before", "words"),
    [
        ("at", "", "pass", ""),
        ("at", "def size(a): pass", "size()", "it cannot run: the call of `size(…)` does not fit its parameters"),
        (
            "at",
            "DEBUG = False",
            "if not DEBUG:\n        return",
            "it is never reached: `DEBUG` is always False",
        ),
        ("at", "DEBUG = False", "if DEBUG:\n        print(agent)", ""),
        ("at", "def size():\n    'why'\n    raise NotImplementedError", "size()", "it cannot run: `size(…)` always raises"),
        ("at", "def size():\n    if DEBUG: return 3\n    raise OSError", "size()", ""),
        ("at", "def size():\n    if DEBUG: print(3)\n    raise OSError", "size()", "it cannot run: `size(…)` always raises"),
        ("at", "def size():\n    yield 3\n    raise OSError", "size()", ""),
        ("at", "def size():\n    for each in agent: raise OSError", "size()", ""),
        ("at", RAISING, "later = Later()\n    later.size()", "it cannot run: `later.size(…)` always raises"),
        ("at", f"{RAISING}\nclass Last(Later):\n    def size(self): pass", "later = Last()\n    later.all()", ""),
        ("at", "def size(a): pass", "try: size()\n    except TypeError: pass", ""),
        ("at", "from more import Later", "pass", "it cannot run: `Later` is imported, which is not there"),
        ("at", "", "from more import Later", "it cannot run: `Later` is imported, which is not there"),
        ("at", "", "try:\n        from more import Later\n    except ImportError: pass", ""),
        ("at", "", "if agent.net.training:\n        from more import Later", ""),
        (
            "getattr(self, 'part_{}'.format(at))",
            "def size(a): pass",
            "size()",
            "it cannot run: the call of `size(…)` does not fit",
        ),
        ("getattr(self, 'eval{}'.format(at))", "def size(a): pass", "size()", ""),
        ("getattr(self, 'eval%d' % at)", "def size(a): pass", "size()", ""),
        ("self.__dict__[at]()", "def size(a): pass", "size()", "it cannot run: the call of `size(…)` does not fit"),
    ],
)
def test_callers_that_do_not_come_to_the_call(taken: str, above: str, before: str, words: str) -> None:
    texts = {"agent.py": AGENT.format(taken=taken), "train.py": CALLER.format(above=above, before=before)}
    files = texts | {"nets.py": NETS, "more.py": "import torch\n"}
    (found,) = [one for one in alarms({f"scripts/{name}": text for name, text in files.items()}, "TML201")]
    assert (found.severity is Severity.NOTE) == bool(words)
    assert words in found.cost


TURN = """\
import torch
from nets import Net

def size(a): pass

def evaluate(net: Net, loader):
    net.eval()
    for images in loader:
        print(net(images.cuda()).argmax(1))
        {after}
    {behind}

if __name__ == "__main__":
    evaluate(Net().cuda(), torch.zeros(4, 2, 3, 8, 8))
"""


@pytest.mark.parametrize(
    ("after", "behind", "is_note"),
    [
        ("pass", "pass", False),
        ("size()", "pass", True),
        ("print(images)\n        size()", "pass", True),
        ("if images is None: continue\n        size()", "pass", False),
        ("if images is None: size()", "pass", False),
        ("try: size()\n        except TypeError: pass", "pass", False),
        ("pass", "size()", False),  # what the loop cost has been paid by then
    ],
)
def test_a_turn_that_ends_in_an_error_is_the_only_one(after: str, behind: str, is_note: bool) -> None:
    (found,) = alarms({"nets.py": NETS, "train.py": TURN.format(after=after, behind=behind)}, "TML201")
    assert (found.severity is Severity.NOTE) == is_note


LIT = """\
import torch
import pytorch_lightning as pl
from torch import nn

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(3, 512, 3)

    def training_step(self, batch, at):
        torch.cuda.empty_cache()
        loss = self.{read}(batch).mean()
        return loss

{more}
def main(loader):
    pl.Trainer().fit({made}, loader)

main([])
"""


@pytest.mark.parametrize(
    ("read", "more", "made", "is_note"),
    [
        ("net", "", "Lit()", False),
        ("body", "", "Lit()", True),
        ("optimizers", "", "Lit()", False),
        ("body", "class Below(Lit):\n    body = print\n", "Lit()", False),
        ("body", "class Below(Lit): pass\n", "Below()", False),
        ("body", "def set_body(lit): lit.body = print\n", "Lit()", False),
        ("body", "def set_all(lit, name): setattr(lit, name, print)\n", "Lit()", False),
        ("body", "class Other:\n    def __init__(self): self.body = print\n", "Lit()", True),
    ],
)
def test_attributes_of_a_framework_s_module(read: str, more: str, made: str, is_note: bool) -> None:
    found = alarms({"train.py": LIT.format(read=read, more=more, made=made)}, "TML301")
    assert {one.severity is Severity.NOTE for one in found} == {is_note}


HANDED_ON = """\
import torch
from nets import Net

def evaluate(net: Net, loader, logs=False):
    net.eval()
    if not logs:
        return
    for images in loader:
        print(net(images.cuda()).argmax(1))

def run(net, loader, logs={default}):
    {before}
    evaluate(net, loader, logs={given})

if __name__ == "__main__":
    run(Net().cuda(), torch.zeros(4, 2, 3, 8, 8){more})
"""


@pytest.mark.parametrize(
    ("default", "before", "given", "more", "is_note"),
    [
        ("False", "pass", "logs", "", True),
        ("False", "pass", "False", "", True),
        ("False", "pass", "True", "", False),
        ("True", "pass", "logs", "", False),
        ("False", "pass", "logs", ", True", False),
        ("False", "pass", "logs", ", logs=False", True),
        ("False", "logs = bool(loader)", "logs", "", False),
        ("False", "pass", "loader", "", False),
    ],
)
def test_an_option_that_each_function_hands_on(default: str, before: str, given: str, more: str, is_note: bool) -> None:
    text = HANDED_ON.format(default=default, before=before, given=given, more=more)
    (found,) = alarms({"nets.py": NETS, "train.py": text}, "TML201")
    assert (found.severity is Severity.NOTE) == is_note


OWN_FLAG = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.{flag} = True
        self.body = nn.Conv2d(3, 512, 3)
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

    def infer(self, loader):
        if not self.{flag}:
            for x in loader:
                print(self(x.cuda()).argmax(1))

def main(loader):
    net = Net().cuda()
    net.eval()
    net.infer(loader)

if __name__ == "__main__":
    main(torch.zeros(4, 2, 3, 8, 8))
"""


@pytest.mark.parametrize(("flag", "is_reached"), [("whole", False), ("training", True)])  # `eval()` sets the other one
def test_a_flag_that_the_constructor_alone_sets(flag: str, is_reached: bool) -> None:
    found = alarms({"train.py": OWN_FLAG.format(flag=flag)}, "TML201")
    assert any(one.severity is not Severity.NOTE for one in found) == is_reached
