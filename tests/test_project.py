"""The project graph: names over files, classes, callers, and the grad mode in which a function starts."""

import importlib.util
import random
import textwrap
from pathlib import Path

import pytest

from torchmemlint.index.dependency_log import DependencyLog
from torchmemlint.index.edges import Caller
from torchmemlint.index.grad_effects import OFF, on_if
from torchmemlint.index.memo import Memo
from torchmemlint.index.modes import CallerMode
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.plain import from_plain, positions, shape
from torchmemlint.index.project import ClassRef, FunctionRef, Project


def project(**files: str) -> Project:
    """A project of files; "__" in a name stands for "/" ("pkg__init" is pkg/__init__.py)."""
    facts = []
    for name, source in files.items():
        path = name.replace("__", "/")
        path = path[: -len("init")] + "__init__" if path.endswith("/init") else path
        facts.append(module_facts(f"{path}.py", textwrap.dedent(source)))
    return Project.build(facts)


def mode(source: str, qualname: str, **more: str) -> str:
    return project(m="import torch\n" + textwrap.dedent(source), **more).grad_mode(FunctionRef("m.py", qualname)).mode


# --- names


def test_aliases_resolve_to_absolute_names() -> None:
    p = project(
        m="""
        import torch as th
        import torch.nn.functional as F
        import os.path
        from torch import no_grad as ng
        quiet = ng
        def f(th2, x):
            local = 1
        """
    )
    names = {
        "F.cross_entropy": "torch.nn.functional.cross_entropy",
        "th.no_grad": "torch.no_grad",
        "ng": "torch.no_grad",
        "quiet": "torch.no_grad",
        "os.path.join": "os.path.join",
        "float": "builtins.float",
        "f": "m.f",
        "nowhere": None,
        "th2": None,
        "local": None,
        "x.cuda": None,
        "f()": None,
    }
    assert {text: p.resolve("m.py", text, "f") for text in names} == names


def test_re_exports_star_imports_and_relative_imports() -> None:
    p = project(
        pkg__init="from .core import *\nfrom .sub import Net as Model\n",
        pkg__core="def run(): pass\ndef _hidden(): pass\n",
        pkg__sub__init="from ._impl import Net\n",
        pkg__sub___impl="class Net:\n  def step(self): pass\n",
        pkg__user="from . import run, Model\nfrom .. import nothing\nfrom pkg import _hidden\n",
        script="import pkg\nfrom pkg.sub import Net\n",
    )
    assert p.resolve("pkg/user.py", "run") == "pkg.core.run"
    assert p.resolve("pkg/user.py", "Model.step") == "pkg.sub._impl.Net.step"
    assert p.resolve("script.py", "pkg.Model") == "pkg.sub._impl.Net"
    assert p.resolve("script.py", "Net") == "pkg.sub._impl.Net"
    assert p.resolve("pkg/user.py", "_hidden") is None
    assert p.function("pkg.run") == FunctionRef("pkg/core.py", "run")
    assert p.klass("pkg.Model") == ClassRef("pkg/sub/_impl.py", "Net")
    assert p.function("pkg.Model.step") == FunctionRef("pkg/sub/_impl.py", "Net.step")
    assert p.klass("pkg.core.run") is None


def test_try_except_import_and_name_of_a_function_like_its_module() -> None:
    p = project(
        pkg__init="from .fit import fit\n",
        pkg__fit="def fit(): pass\n",
        m="try:\n  from pkg import fit\nexcept ImportError:\n  fit = None\n",
    )
    assert p.resolve("m.py", "fit") == "pkg.fit.fit"


def test_an_import_goes_through_modules_whatever_their_package_binds_to_their_names() -> None:
    p = project(
        pkg__init="from .convert import convert\nfrom .deep import tools",
        pkg__convert="def convert(): ...\ndef other(): ...",
        pkg__deep__init="from ..convert import convert as tools",
        pkg__deep__tools="def used(): ...",
        pkg__use="from .convert import convert, other\nfrom pkg.deep.tools import used\nfrom pkg import convert as again",
    )
    found = {name: p.resolve("pkg/use.py", name) for name in ("convert", "other", "used", "again")}
    assert found == {
        "convert": "pkg.convert.convert",
        "other": "pkg.convert.other",
        "used": "pkg.deep.tools.used",
        "again": "pkg.convert.convert",
    }


def test_circular_imports_end() -> None:
    p = project(a="from b import x\nfrom b import *\n", b="from a import x\nfrom a import *\n")
    assert p.resolve("a.py", "x") is None
    assert p.resolve("a.py", "y") is None


def test_a_file_that_bears_the_name_of_a_library_is_not_what_its_neighbours_import() -> None:
    p = project(
        pkg__init="from pkg.helpers import help",
        pkg__torch="import torch\ndef no_grad(): pass",
        pkg__transformers="from transformers import AutoModel",
        pkg__helpers="def help(): pass",
        pkg__m="import torch, transformers, helpers\nfrom .torch import no_grad as adapter",
        elsewhere__torch="def no_grad(): pass",
        scripts__diffusers="import diffusers\nuse = diffusers.load",
    )
    assert p.resolve("pkg/m.py", "torch.no_grad") == "torch.no_grad"
    assert p.resolve("pkg/m.py", "transformers.AutoModel") == "transformers.AutoModel"
    assert p.resolve("pkg/transformers.py", "AutoModel") == "transformers.AutoModel"
    assert p.resolve("scripts/diffusers.py", "diffusers.load") == "diffusers.load"
    assert p.resolve("pkg/m.py", "helpers.help") == "pkg.helpers.help"  # a file that is also run as a script
    assert p.resolve("pkg/m.py", "adapter") == "pkg.torch.no_grad"
    assert p.resolve("pkg/__init__.py", "help") == "pkg.helpers.help"


def test_scripts_find_their_neighbours_and_src_layouts_their_package() -> None:
    p = project(
        ex__one__train="from utils.metrics import acc\nimport logging\n",
        ex__one__utils__metrics="def acc(): pass\n",
        ex__two__train="from utils.metrics import acc\n",
        ex__two__utils__metrics="def acc(): pass\n",
        src__pkg__init="",
        src__pkg__logging="def info(): pass",
        src__pkg__a="import logging\ndef f(): pass\n",
        tests__t="from pkg.a import f\n",
    )
    one, two = p.resolve("ex/one/train.py", "acc"), p.resolve("ex/two/train.py", "acc")
    assert one != two
    assert p.function(one or "") == FunctionRef("ex/one/utils/metrics.py", "acc")
    assert p.function(two or "") == FunctionRef("ex/two/utils/metrics.py", "acc")
    assert p.resolve("tests/t.py", "f") == "pkg.a.f"
    assert p.resolve("src/pkg/a.py", "logging.info") == "logging.info"
    assert len({p.module_name(path) for path in p.paths}) == len(p.paths)


def test_a_repository_that_is_a_package_itself_imports_from_its_own_folder() -> None:
    p = project(
        repo__init="",
        repo__main="from models.utils.base import Base\n",
        repo__models__init="",
        repo__models__utils__init="",
        repo__models__utils__base="class Base: pass\n",
        repo__models__net="from models.utils.base import Base\nimport logging\nimport numpy\n",
        repo__logging="def info(): pass",
        repo__numpy="def array(): pass",
    )
    assert p.resolve("repo/models/net.py", "Base") == "repo.models.utils.base.Base"
    assert p.resolve("repo/main.py", "Base") == "repo.models.utils.base.Base"
    assert p.resolve("repo/models/net.py", "logging.info") == "logging.info"
    assert p.resolve("repo/models/net.py", "numpy.array") == "numpy.array"


# --- classes


CLASSES = """
    import torch.nn as nn
    from elsewhere import Unknown
    class Base(nn.Module):
        def __init__(self, enc: "Encoder", crit=None):
            self.enc = enc
            self.crit = nn.CrossEntropyLoss()
            self.blocks = nn.ModuleList([Block() for _ in range(3)])
        def run(self, x): return self.hook(x)
    class A(Base):
        def hook(self, x): return self.enc.encode(x)
    class B(Base):
        def hook(self, x):
            for block in self.blocks:
                x = block(x)
            return super().run(x)
    class D(A, B): pass
    class Far(Unknown): pass
    class Encoder:
        def encode(self, x): pass
        def embed(self, x): pass
    class Block(nn.Module):
        def forward(self, x): return x
    def build() -> Base: return A(None)
    def make(): return B(None)
    def use(e: Encoder, flag):
        a = A(e)
        a = a.cuda()
        other = build()
        made = make()
        e.encode(1)
        a.run(1)
        made.hook(2)
        thing = flag.embed(3)
    """


def test_mro_methods_and_subclasses() -> None:
    p = project(m=CLASSES)
    a, b, d, base = (ClassRef("m.py", name) for name in ("A", "B", "D", "Base"))
    assert p.mro(d) == (d, a, b, base, "torch.nn.Module")
    assert p.method(d, "hook") == FunctionRef("m.py", "A.hook")
    assert p.method(d, "run") == FunctionRef("m.py", "Base.run")
    assert p.method(d, "missing") is None
    assert p.subclasses(base) == (a, b, d)
    assert p.is_subclass(d, "torch.nn.Module") is True
    assert p.is_subclass(d, "m.Base") is True
    assert p.is_subclass(ClassRef("m.py", "Encoder"), "torch.nn.Module") is False
    assert p.is_subclass(ClassRef("m.py", "Far"), "torch.nn.Module") is None
    assert [(fact.value, klass.qualname) for fact, klass in p.attr(d, "crit")] == [("nn.CrossEntropyLoss()", "Base")]


@pytest.mark.parametrize(
    ("function", "text", "klass"),
    [
        ("use", "a", "A"),
        ("use", "e", "Encoder"),
        ("use", "other", "Base"),
        ("use", "made", "B"),
        ("use", "made.enc", "Encoder"),
        ("use", "flag", None),
        ("A.hook", "self", "A"),
        ("A.hook", "self.enc", "Encoder"),
        ("A.hook", "self.crit", "torch.nn.CrossEntropyLoss"),
        ("B.hook", "block", "Block"),
        ("B.hook", "self.blocks[]", "Block"),
        ("B.hook", "self.nothing", None),
    ],
)
def test_class_of_an_expression(function: str, text: str, klass: str | None) -> None:
    found = project(m=CLASSES).class_of("m.py", function, text)
    assert (found.qualname if isinstance(found, ClassRef) else found) == klass


def callees(p: Project, path: str, qualname: str) -> dict[str, tuple[list[str], bool]]:
    facts = p.facts(FunctionRef(path, qualname))
    found = {call.callee: p.callees(path, qualname, call.callee, *call.keywords) for call in facts.calls}
    return {text: ([ref.qualname for ref in each.refs], each.certain) for text, each in found.items() if each.refs}


def test_callees_by_evidence_and_by_name() -> None:
    p = project(m=CLASSES)
    assert callees(p, "m.py", "use") == {
        "A": (["Base.__init__"], True),
        "build": (["build"], True),
        "make": (["make"], True),
        "e.encode": (["Encoder.encode"], True),
        "a.run": (["Base.run"], True),
        "made.hook": (["B.hook"], True),
        "flag.embed": (["Encoder.embed"], False),
    }
    assert callees(p, "m.py", "Base.run") == {"self.hook": (["A.hook", "B.hook"], True)}
    assert callees(p, "m.py", "B.hook") == {"block": (["Block.forward"], True), "super().run": (["Base.run"], True)}


def test_callers_across_files_and_aliases() -> None:
    p = project(
        lib="def step(x): pass\nclass T:\n  def __init__(self): self.go = step\n  def run(self): self.go(1)\n",
        a="from lib import step as s\ndef one(): s(1)\n",
        b="import lib\ndef two():\n  f = lib.step\n  f(1)\n",
    )
    found = p.callers(FunctionRef("lib.py", "step"))
    assert [(caller.ref.path, caller.ref.qualname) for caller in found.calls] == [
        ("a.py", "one"),
        ("b.py", "two"),
        ("lib.py", "T.run"),
    ]
    assert not found.escapes


@pytest.mark.parametrize(
    "use",
    [
        "register(step)",
        "table = {'a': step}",
        "table['x'] = step",
        "x = functools.partial(step, 1)",
        "pool.submit(step, 1)",
        "def g(): return step",
    ],
)
def test_function_handed_on_escapes(use: str) -> None:
    p = project(m=f"import functools\ndef step(x): pass\n{use}\n")
    assert p.callers(FunctionRef("m.py", "step")).escapes


@pytest.mark.parametrize(
    ("use", "escapes"),
    [
        ("if args.test: pass", False),
        ("if not args.test and args.more: pass", False),
        ("while args.test: pass", False),
        ("x = 1 if args.test else 2", False),
        ("x = args.test == 'all'", False),
        ("x = [y for y in z if args.test]", False),
        ("x = args.test or y", True),
        ("x = y if z else args.test", True),
        ("run(args.test)", True),
        ("return args.test", True),
        ("if run(args.test): pass", True),
    ],
)
def test_attribute_whose_truth_is_asked_is_not_handed_on(use: str, escapes: bool) -> None:
    p = project(m=f"class Runner:\n  def test(self): pass\ndef main(args, y, z):\n  {use}\n")
    assert p.callers(FunctionRef("m.py", "Runner.test")).escapes is escapes


def test_methods_that_escape() -> None:
    p = project(
        m="""
        class T:
            def a(self): pass
            def b(self): pass
            def c(self): pass
            def d(self): pass
            @app.route("/")
            def e(self): pass
            def go(self, name):
                register(self.a)
                getattr(self, "b")()
                self.c()
                self.d = 3
        """
    )
    escaping = {name: p.callers(FunctionRef("m.py", f"T.{name}")).escapes for name in "abcde"}
    assert escaping == {"a": True, "b": True, "c": False, "d": False, "e": True}


# --- grad mode


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        ("@torch.no_grad()", "off"),
        ("@torch.no_grad", "off"),
        ("@torch.inference_mode()", "off"),
        ("@torch.inference_mode(False)", "on"),
        ("@torch.enable_grad()", "on"),
        ("@torch.set_grad_enabled(False)", "off"),
        ("@torch.no_grad()\n@torch.enable_grad()", "on"),
        ("@torch.enable_grad()\n@staticmethod\n@torch.no_grad()", "off"),
        ("@staticmethod", "no-callers"),
        ("@unknown", "escapes"),
    ],
)
def test_own_decorator(decorator: str, expected: str) -> None:
    assert mode(f"{decorator}\ndef f(x): pass", "f") == expected


def test_decorator_on_a_coroutine_does_nothing_and_on_a_generator_works() -> None:
    assert mode("@torch.no_grad()\nasync def f(x): pass", "f") == "no-callers"
    assert mode("@torch.no_grad()\ndef f(x): yield x", "f") == "off"


HOME_MADE_DECORATORS = {
    "plain": "def deco(f):\n  def wrapper(*a):\n    with torch.no_grad():\n      return f(*a)\n  return wrapper\n",
    "wraps": "import functools\ndef deco(f):\n  @functools.wraps(f)\n  def w():\n    with torch.no_grad(): f()\n  return w\n",
    "decorated wrapper": "def deco(f):\n  @torch.no_grad()\n  def w(*a): return f(*a)\n  return w\n",
    "application": "def deco(f):\n  return torch.no_grad()(f)\n",
    "alias": "deco = torch.no_grad()\n",
    "subclass": "class Deco(torch.no_grad): pass\ndeco = Deco()\n",
    "statement": "def deco(f):\n  def w():\n    torch.set_grad_enabled(False)\n    f()\n  return w\n",
    "conditional application": "def deco(f):\n  if x: return f\n  return (torch.inference_mode if y else torch.no_grad)()(f)\n",
}  # fmt: skip


@pytest.mark.parametrize("source", HOME_MADE_DECORATORS.values(), ids=HOME_MADE_DECORATORS)
def test_home_made_decorator(source: str) -> None:
    assert mode(f"{source}\n@deco\ndef f(x): pass", "f") == "off"


def test_home_made_decorator_factory_and_one_without_effect() -> None:
    factory = """
    def deco(flag=True):
        def outer(f):
            def w(*a):
                with torch.set_grad_enabled(flag): return f(*a)
            return w
        return outer
    @deco(False)
    def quiet(x): pass
    @deco()
    def loud(x): pass
    def timed(f):
        def w(*a): return f(*a)
        return w
    @timed
    def neutral(x): pass
    """
    assert mode(factory, "quiet") == "off"
    assert mode(factory, "loud") == "on"
    assert mode(factory, "neutral") == "no-callers"


def test_home_made_decorator_in_another_file() -> None:
    lib = "import torch\ndef quiet(f):\n  def w(*a):\n    with torch.no_grad(): return f(*a)\n  return w\n"
    assert mode("from lib import quiet\n@quiet\ndef f(x): pass", "f", lib=lib) == "off"


MANAGERS = {
    "torch": ("", "torch.no_grad()", "off"),
    "inner wins": ("", "torch.no_grad(), torch.enable_grad()", "on"),
    "other managers": ("", "torch.no_grad(), lock, torch.autocast('cuda')", "off"),
    "contextmanager": (
        "from contextlib import contextmanager\n@contextmanager\ndef quiet():\n  with torch.no_grad():\n    yield\n",
        "quiet()",
        "off",
    ),
    "contextmanager by statement": (
        "import contextlib\n@contextlib.contextmanager\ndef quiet():\n  was = torch.is_grad_enabled()\n"
        "  torch.set_grad_enabled(False)\n  try:\n    yield\n  finally:\n    torch.set_grad_enabled(was)\n",
        "quiet()",
        "off",
    ),
    "unrelated contextmanager": (
        "from contextlib import contextmanager\n@contextmanager\ndef timer():\n  yield\n",
        "timer()",
        "no-callers",
    ),
    "class": (
        "class Quiet:\n  def __enter__(self):\n    self.was = torch.is_grad_enabled()\n    torch.set_grad_enabled(False)\n"
        "  def __exit__(self, *a): torch.set_grad_enabled(self.was)\n",
        "Quiet()",
        "off",
    ),
    "class with a flag": (
        "class Grad:\n  def __init__(self, mode): self.mode = mode\n"
        "  def __enter__(self): torch.set_grad_enabled(self.mode)\n  def __exit__(self, *a): pass\n",
        "Grad(False)",
        "off",
    ),
    "factory": ("def quiet():\n  return torch.no_grad()\n", "quiet()", "off"),
    "factory with a flag": ("def grad(on):\n  return torch.set_grad_enabled(on)\n", "grad(False)", "off"),
    "factory with a default": ("def grad(on=False):\n  return torch.set_grad_enabled(on)\n", "grad()", "off"),
    "factory with a keyword": ("def grad(*, on=True):\n  return torch.set_grad_enabled(not on)\n", "grad(on=True)", "off"),
    "factory of a factory": (
        "def grad(on):\n  return torch.set_grad_enabled(on)\ndef by_phase(phase):\n  return grad(phase == 'train')\n",
        "by_phase('val')",
        "off",
    ),
    "conditional": ("from contextlib import nullcontext\n", "torch.no_grad() if x else nullcontext()", "mixed"),
    "both the same": ("", "torch.no_grad() if x else torch.inference_mode()", "off"),
    "flag unknown": ("", "torch.set_grad_enabled(x > 3)", "mixed"),
    "constant attribute": ("class S:\n  def __init__(self): self.on = False\ns = S()\n", "torch.set_grad_enabled(s.on)", "off"),
    "inference mode with a flag": ("", "torch.inference_mode(mode=False)", "on"),
    "named object": ("quiet = torch.no_grad()\n", "quiet", "off"),
}


@pytest.mark.parametrize(("prelude", "manager", "expected"), MANAGERS.values(), ids=MANAGERS)
def test_caller_under_a_manager(prelude: str, manager: str, expected: str) -> None:
    assert mode(f"{prelude}def f(y): pass\ndef g(x):\n  with {manager}:\n    f(x)\n", "f") == expected


def test_manager_effect_reaches_the_engine() -> None:
    p = project(
        m="""
        import torch
        def g(flag, phase):
            with torch.set_grad_enabled(flag): a()
            with torch.set_grad_enabled(phase == "train"): b()
            with torch.set_grad_enabled(not flag): c()
            with torch.no_grad(): d()
            with lock: e()
        """
    )
    facts = p.facts(FunctionRef("m.py", "g"))
    effects = [p.manager_effect("m.py", "g", use) for call in facts.calls for use in call.managers]
    assert effects == [on_if("flag"), on_if("phase == 'train'"), on_if("not flag"), OFF, None]


STATEMENTS = {
    "before": ("torch.set_grad_enabled(False)\n  f(1)", "off"),
    "after": ("f(1)\n  torch.set_grad_enabled(False)", "no-callers"),
    "restored": ("torch.set_grad_enabled(False)\n  torch.set_grad_enabled(True)\n  f(1)", "on"),
    "restored to what it was": (
        "was = torch.is_grad_enabled()\n  torch.set_grad_enabled(False)\n  torch.set_grad_enabled(was)\n  f(1)",
        "no-callers",
    ),
    "in one branch": ("if x:\n    torch.set_grad_enabled(False)\n  f(1)", "mixed"),
    "in a with": ("with lock:\n    torch.set_grad_enabled(False)\n  f(1)", "off"),
    "inside a grad manager": ("with torch.enable_grad():\n    torch.set_grad_enabled(False)\n  f(1)", "no-callers"),
    "exit stack": ("with ExitStack() as s:\n    s.enter_context(torch.no_grad())\n    f(1)", "off"),
    "after the exit stack": ("with ExitStack() as s:\n    s.enter_context(torch.no_grad())\n  f(1)", "no-callers"),
    "try finally": ("torch.set_grad_enabled(False)\n  try:\n    f(1)\n  finally:\n    torch.set_grad_enabled(True)", "off"),
    "home-made": ("switch(False)\n  f(1)", "off"),
    "home-made, on": ("switch(False)\n  switch(True)\n  f(1)", "on"),
    "home-made, under a manager": ("switch(True)\n  with torch.no_grad():\n    f(1)", "off"),
    "by hand": ("m = torch.no_grad()\n  m.__enter__()\n  f(1)\n  m.__exit__()", "off"),
    "by hand, after": ("m = torch.no_grad()\n  m.__enter__()\n  m.__exit__()\n  f(1)", "no-callers"),
    "in a lambda": ("with torch.no_grad():\n    run(lambda: f(1))", "off"),
    "in a lambda with grad on": ("run(lambda: f(1))", "escapes"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), STATEMENTS.values(), ids=STATEMENTS)
def test_statements_in_the_caller(body: str, expected: str) -> None:
    source = f"def switch(on):\n  torch.set_grad_enabled(on)\ndef f(y): pass\ndef g(x):\n  {body}\n"
    assert mode(f"from contextlib import ExitStack\n{source}", "f") == expected


def test_cross_file_callers() -> None:
    files = {
        "a": "import torch\nfrom m import f\ndef one():\n  with torch.no_grad(): f(1)\n",
        "b": "import torch\nimport m\n@torch.inference_mode()\ndef two(): m.f(2)\n",
    }
    assert mode("def f(x): pass", "f", **files) == "off"
    assert mode("def f(x): pass", "f", **files, c="import m\nm.f(3)\n") == "mixed"
    assert mode("def f(x): pass", "f", c="import m\nm.f(3)\n") == "on"


def test_mixed_names_the_path_that_is_on() -> None:
    p = project(
        m="""
        import torch
        def f(x): pass
        def inner(x): f(x)
        def quiet(x):
            with torch.no_grad(): inner(x)
        def loud(x): inner(x)
        if __name__ == "__main__":
            loud(1)
        """
    )
    found = p.grad_mode(FunctionRef("m.py", "f"))
    assert (found.mode, found.assumed) == ("mixed", False)
    assert [caller.ref.qualname for caller in found.path] == ["inner", "loud", "<module>"]


def test_mixed_by_assumption_says_so() -> None:
    source = "def f(x): pass\ndef a(x):\n  with torch.no_grad(): f(x)\ndef b(x): f(x)\n"
    found = project(m="import torch\n" + source).grad_mode(FunctionRef("m.py", "f"))
    assert (found.mode, found.assumed, [caller.ref.qualname for caller in found.path]) == ("mixed", True, ["b"])


def test_recursion_ends_and_takes_the_mode_from_outside() -> None:
    even_odd = "def even(n): odd(n)\ndef odd(n): even(n)\n"
    assert mode(even_odd, "even") == "no-callers"
    assert mode(even_odd + "def g():\n  with torch.no_grad(): even(3)\n", "odd") == "off"
    assert mode(even_odd + "odd(1)\ndef g():\n  with torch.no_grad(): even(3)\n", "even") == "mixed"
    assert mode("def f(n): f(n - 1)\n", "f") == "no-callers"


def test_template_method_guards_the_hooks_of_subclasses_in_other_files() -> None:
    files = {
        "base": """
            import torch
            class Base:
                def evaluate(self, xs):
                    with torch.no_grad():
                        for x in xs: self.eval_step(x)
                def fit(self, xs):
                    for x in xs: self.train_step(x)
            """,
        "sub": """
            from base import Base
            class Sub(Base):
                def eval_step(self, x): return self.shared(x)
                def train_step(self, x): return self.shared(x)
                def shared(self, x): return x
            """,
    }
    p = project(**files)
    modes = {name: p.grad_mode(FunctionRef("sub.py", f"Sub.{name}")).mode for name in ("eval_step", "train_step", "shared")}
    assert modes == {"eval_step": "off", "train_step": "no-callers", "shared": "mixed"}


def test_hooks_of_frameworks() -> None:
    source = """
    import pytorch_lightning as pl
    class M(pl.LightningModule):
        def validation_step(self, batch, i): return self.help(batch)
        def training_step(self, batch, i): return self.loss(batch)
        def help(self, batch): pass
        def loss(self, batch): pass
        def own_method(self): pass
        def on_later_hook(self): pass
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x
    """
    assert {
        name: mode(source, name)
        for name in ("M.validation_step", "M.training_step", "M.help", "M.loss", "M.own_method", "M.on_later_hook", "F.forward")
    } == {
        "M.validation_step": "off",
        "M.training_step": "on",
        "M.help": "off",
        "M.loss": "on",
        "M.own_method": "no-callers",
        "M.on_later_hook": "unseen-base",
        "F.forward": "off",
    }


def test_unseen_base_may_call_what_nothing_else_calls() -> None:
    source = """
    from elsewhere import Base
    class A(Base):
        def hook(self): pass
        def helper(self): pass
        def go(self): self.helper()
    def run(a: A):
        with torch.no_grad(): a.go()
    class Net(torch.nn.Module):
        def encode(self, x): pass
    """
    assert mode(source, "A.hook") == "unseen-base"
    assert mode(source, "A.helper") == "off"
    assert mode(source, "Net.encode") == "no-callers"


def test_set_grad_enabled_for_the_rest_of_the_program() -> None:
    in_init = """
    class Runner:
        def __init__(self):
            torch.set_grad_enabled(False)
        def run(self): helper()
    class Sub(Runner):
        def more(self): pass
    def helper(): pass
    """
    assert {name: mode(in_init, name) for name in ("Runner.run", "Sub.more", "helper", "Runner.__init__")} == {
        "Runner.run": "off",
        "Sub.more": "off",
        "helper": "off",
        "Runner.__init__": "no-callers",
    }
    at_top = "torch.set_grad_enabled(False)\ndef f(): g()\ndef g(): pass\nf()\n"
    assert mode(at_top, "g") == "off"
    assert mode("torch.set_grad_enabled(False)\ndef f(): pass\n", "f") == "off"
    after = "class R:\n  def __init__(self): torch.set_grad_enabled(False)\ndef main():\n  r = R()\n  f(r)\ndef f(r): pass\n"
    assert mode(after, "f") == "off"


def test_parameter_decides_by_constants_at_calls() -> None:
    source = """
    def net(x): pass
    def step(x, track_gradient=True):
        with torch.set_grad_enabled(track_gradient):
            net(x)
    def evaluate(x): step(x, track_gradient=False)
    """
    assert mode(source, "net") == "off"
    assert mode(source + "def fit(x): step(x)\n", "net") == "mixed"
    phase = """
    def net(x): pass
    def epoch(x, phase):
        with torch.set_grad_enabled(phase == "train"):
            net(x)
    def test(x): epoch(x, "test")
    """
    assert mode(phase, "net") == "off"
    assert mode(phase + "def fit(x): epoch(x, 'train')\n", "net") == "mixed"


def test_forward_is_called_through_instances() -> None:
    source = """
    class Net(torch.nn.Module):
        def forward(self, x): return self.part(x)
        def part(self, x): pass
    class Eval:
        def __init__(self): self.net = Net().eval()
        @torch.no_grad()
        def __call__(self, x): return self.net(x)
    """
    assert mode(source, "Net.forward") == "off"
    assert mode(source, "Net.part") == "off"
    assert mode(source + "\n    def train(n: Net): n(1)\n", "Net.part") == "mixed"


def test_a_caller_by_name_only_does_not_overrule_one_that_is_sure() -> None:
    source = """
    class T:
        def measure(self): pass
        @torch.no_grad()
        def go(self): self.measure()
    def other(thing): thing.measure()
    """
    assert mode(source, "T.measure") == "off"
    by_name = "class T:\n  def measure(self): pass\n@torch.no_grad()\ndef other(thing): thing.measure()\n"
    assert mode(by_name, "T.measure") == "off"


def test_callers_through_a_name_bound_on_two_branches() -> None:
    source = """
    class T:
        @torch.no_grad()
        def evaluate(self, full):
            if full:
                run = self.full
            else:
                run = self.sampled
            run(1)
        def full(self, x): pass
        def sampled(self, x): pass
    """
    assert [mode(source, "T.full"), mode(source, "T.sampled")] == ["off", "off"]


def test_method_of_an_unknown_object_is_looked_for_in_one_family_of_classes() -> None:
    models = "class Base:\n  def score(self): pass\n" + "".join(
        f"class M{i}(Base):\n  def score(self): pass\n" for i in range(9)
    )
    caller = "import torch\nclass T:\n  @torch.no_grad()\n  def go(self, net): net.score()\n"
    p = project(pkg__init="", pkg__models=models, pkg__trainer=caller)
    assert p.grad_mode(FunctionRef("pkg/models.py", "M3.score")).mode == "off"
    (found,) = p.callers(FunctionRef("pkg/models.py", "M3.score")).calls
    assert not found.certain
    unrelated = "".join(f"class M{i}:\n  def score(self): pass\n" for i in range(9))
    p = project(pkg__init="", pkg__models=unrelated, pkg__trainer=caller)
    assert p.callers(FunctionRef("pkg/models.py", "M3.score")).calls == ()


def test_method_behind_an_attribute() -> None:
    source = """
    class Agent:
        def __init__(self, many):
            if many:
                self.explore = self.explore_many
            else:
                self.explore = self.explore_one
        def explore_one(self): pass
        def explore_many(self): pass
    @torch.no_grad()
    def drive(agent): agent.explore()
    """
    assert mode(source, "Agent.explore_one") == "off"
    assert not project(m=source).callers(FunctionRef("m.py", "Agent.explore_one")).escapes


def test_module_that_names_itself() -> None:
    p = project(m="import sys\nthis = sys.modules[__name__]\nclass A: pass\nclass B(this.A): pass\n")
    assert p.mro(ClassRef("m.py", "B")) == (ClassRef("m.py", "B"), ClassRef("m.py", "A"))


@pytest.mark.parametrize(
    ("base", "expected"), [("sklearn.base.BaseEstimator", "no-callers"), ("skorch.NeuralNet", "unseen-base")]
)
def test_base_of_a_package_that_does_not_know_grad_mode(base: str, expected: str) -> None:
    assert mode(f"import {base.partition('.')[0]}\nclass A({base}):\n  def score(self): pass\n", "A.score") == expected


def test_home_made_decorator_of_a_generator() -> None:
    applied = "def deco(f):\n  return torch.no_grad()(f)\n@deco\ndef f(x): yield x\n"
    wrapped = "def deco(f):\n  def w(*a):\n    with torch.no_grad(): return f(*a)\n  return w\n@deco\ndef f(x): yield x\n"
    assert [mode(applied, "f"), mode(wrapped, "f")] == ["off", "no-callers"]


def test_method_called_by_its_name_in_a_string() -> None:
    source = "class P:\n  def after_step(self): pass\n  def other_step(self): pass\ndef go(ps): trigger(ps, 'after_step')\n"
    assert [mode(source, "P.after_step"), mode(source, "P.other_step")] == ["escapes", "no-callers"]


def test_callback_escapes() -> None:
    assert mode("def f(x): pass\nregister(f)\n", "f") == "escapes"
    assert mode("def f(x): pass\nregister(f)\n@torch.no_grad()\ndef g(): f(1)\n", "f") == "off"


def test_no_grad_wrapper_of_the_configuration() -> None:
    facts = [
        module_facts("m.py", "from far import quiet\n@quiet\ndef f(): pass\ndef g():\n  with quiet(): h()\ndef h(): pass\n")
    ]
    configured = Project.build(facts, no_grad_wrappers=["far.quiet"])
    assert [configured.grad_mode(FunctionRef("m.py", name)).mode for name in "fh"] == ["off", "off"]
    assert Project.build(facts).grad_mode(FunctionRef("m.py", "h")).mode == "no-callers"


def test_answers_do_not_depend_on_the_order_of_files_or_questions() -> None:
    files = {
        "a": "import torch\nfrom b import *\nfrom c import run\ndef f(): g()\ndef loop(): loop2()\n",
        "b": "import torch\nfrom a import loop\ndef g(): h()\ndef loop2(): loop()\ndef h():\n  with torch.no_grad(): loop2()\n",
        "c": "from a import f\nclass T:\n  def step(self): f()\n  def go(self): self.step()\ndef run(t: T): t.go()\nrun(T())\n",
        "d": "import torch\nfrom c import T\nclass U(T):\n  def step(self):\n    with torch.no_grad(): super().step()\n",
    }
    facts = [module_facts(f"{name}.py", source) for name, source in files.items()]
    refs = [FunctionRef(each.path, function.qualname) for each in facts for function in each.functions]
    shuffle = random.Random(7)
    seen: set[tuple[tuple[FunctionRef, CallerMode, tuple[Caller, ...]], ...]] = set()
    for _ in range(20):
        shuffle.shuffle(facts)
        shuffle.shuffle(refs)
        p = Project.build(facts)
        answers = {ref: p.grad_mode(ref) for ref in refs}
        seen.add(tuple((ref, answers[ref], p.callers(ref).calls) for ref in sorted(refs)))
    assert len(seen) == 1


@pytest.mark.slow
def test_real_code_in_any_order() -> None:
    spec = importlib.util.find_spec("libcst")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    facts = []
    for file in sorted([*root.glob("*.py"), *root.glob("codemod/**/*.py"), *root.glob("matchers/_*.py")]):
        name = file.relative_to(root.parent).as_posix()
        module = module_facts(name, file.read_text(encoding="utf-8"))
        assert from_plain(shape(module), positions(module)) == module
        facts.append(module)
    one, other = Project.build(facts), Project.build(facts[::-1])
    refs = [FunctionRef(module.path, function.qualname) for module in facts for function in module.functions]
    assert len(refs) > 500
    modes = {ref: one.grad_mode(ref) for ref in refs}
    assert modes == {ref: other.grad_mode(ref) for ref in reversed(refs)}
    command = one.klass("libcst.codemod.VisitorBasedCodemodCommand")
    assert command is not None
    assert one.is_subclass(command, "libcst.codemod._codemod.Codemod") is True
    assert not {"off", "mixed"} & {mode.mode for mode in modes.values()}


def test_memoized_results_do_not_depend_on_where_a_cycle_is_entered() -> None:
    graph = {"a": "b", "b": "cx", "c": "ay", "x": "", "y": "", "d": "d"}

    def answers(order: str) -> dict[str, frozenset[str]]:
        def reach(key: str) -> frozenset[str]:
            return frozenset(key).union(*(memo.answer(each) for each in graph[key]))

        memo: Memo[str, frozenset[str]] = Memo(DependencyLog(), reach, frozenset(), limit=10)
        return {key: memo.answer(key) for key in order}

    first = answers("abcxyd")
    assert first == answers("dyxcba") == answers("cadxby")
    assert first["b"] == frozenset("abcxy")
    deep: Memo[int, int] = Memo(DependencyLog(), lambda n: deep.answer(n + 1) + 1, 0, limit=7)
    assert (deep.answer(0), deep.answer(3)) == (7, 7)


def test_no_caller_is_no_answer_where_files_were_left_out() -> None:
    text = "def predict(model, x):\n    return model(x).argmax()\n"
    facts = [module_facts("m.py", text)]
    ref = FunctionRef("m.py", "predict")
    assert Project.build(facts).grad_mode(ref).mode == "no-callers"
    assert Project.build(facts, complete=False).grad_mode(ref).mode == "escapes"


# --- files that nothing uses

PROGRAM = "from parts.net import Net\nimport steps\nif __name__ == '__main__':\n    steps.run(Net())\n"
CLASS = "import torch\nclass Net(torch.nn.Module):\n    pass\n"


def unused(path: str, **more: str) -> bool:
    files = {"train": PROGRAM, "steps": "def run(net):\n    pass\n", "parts__net": CLASS, "parts__old": CLASS}
    files["old"] = "from parts.net import Net\ndef run(net: Net):\n    pass\n"
    return project(**files | more).is_unused_file(path)


def test_a_file_that_no_program_imports_is_unused() -> None:
    files = ["old.py", "parts/net.py", "parts/old.py", "steps.py", "train.py"]
    assert [path for path in files if unused(path)] == ["old.py", "parts/old.py"]


def test_what_may_be_imported_by_a_text_is_not_unused() -> None:
    assert not unused("parts/old.py", by_name="import importlib\nnet = importlib.import_module('parts.' + name)\n")


def test_what_runs_by_itself_is_not_unused() -> None:
    assert not unused("parts/old.py", parts__old=CLASS + "for step in range(3):\n    print(Net()(step))\n")
    assert not unused("parts/old.py", parts__old=CLASS + "def main():\n    Net()\n")


SCORE = "from parts.net import Net\nimport steps\ndef score(net: Net):\n    pass\n"


@pytest.mark.parametrize(
    "statement",
    [
        "best = score(Net())",
        "best = steps.run(Net())",
        "print(score(Net()))",
        "print('best:', max(score(Net()), 0))",
        "raise SystemExit(score(Net()))",
        "import sys; sys.exit(score(Net()))",
        "import asyncio; asyncio.run(score(Net()))",
        "import asyncio; best = asyncio.run(score(Net()))",
        "import fire; fire.Fire(score)",
        "import typer; typer.run(score)",
        "assert score(Net()) > 0.5",
        "best, worst = score(Net()), 0",
        "(best := score(Net()))",
        "with open('out') as file: best = score(Net())",
        "try: best = score(Net())\nexcept OSError: pass",
    ],
)
def test_a_file_that_calls_a_function_is_run_whatever_becomes_of_the_result(statement: str) -> None:
    assert not unused("old.py", old=f"{SCORE}{statement}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "NET = Net()",
        "import logging; log = logging.getLogger(__name__)",
        "SCORES = {'plain': score}",
        "again = lambda: score(Net())",
    ],
)
def test_what_a_file_defines_runs_nothing(statement: str) -> None:
    assert unused("old.py", old=f"{SCORE}{statement}\n")


def test_a_library_may_be_used_by_others() -> None:
    files = {"pkg__init": "", "pkg__net": CLASS, "pkg__more": CLASS, "tests__test_net": "from pkg.net import Net\nNet()\n"}
    assert not project(**files).is_unused_file("pkg/more.py")
    bare = {"lib__net": CLASS, "lib__model": "from lib.net import Net\n", "lib__more": "from lib.net import Net\n" + CLASS}
    assert not project(**bare).is_unused_file("lib/more.py")
    assert project(**files, train="from pkg.net import Net\nNet()\n").is_unused_file("pkg/more.py")


def test_files_apart_are_not_unused() -> None:
    assert not project(one=CLASS, other=CLASS).is_unused_file("one.py")
    assert not project(one=CLASS, other="import one\none.Net()\n", third=CLASS).is_unused_file("third.py")


def test_nothing_is_known_of_who_gives_a_lambda_something() -> None:
    p = project(
        m="""
        def outer(given):
            return lambda x: given(x)

        outer(print)
        """
    )
    inner = FunctionRef("m.py", "outer.<lambda>")
    assert not p.objects_given(inner, "given")
    assert not p.classes_given(inner, "given")
    assert p.objects_given(FunctionRef("m.py", "outer"), "given") == ((FunctionRef("m.py", "<module>"), "print"),)


def test_a_class_that_holds_its_own_kind_may_have_parameters() -> None:
    from torchmemlint.project.settings import Settings
    from torchmemlint.semantics.identity.parameters import has_parameters, made_without_parameters
    from torchmemlint.semantics.state.world import World

    world = World(
        project(
            m="""
            from torch import nn
            class Tree(nn.Module):
                def __init__(self, depth):
                    super().__init__()
                    if depth:
                        self.left = Tree(depth - 1)
                def forward(self, x):
                    return self.left(x)
            """
        ),
        Settings(),
        lambda path: "",
    )
    tree = ClassRef("m.py", "Tree")
    assert not made_without_parameters(world, FunctionRef("m.py", "Tree.__init__"), "Tree", tree)
    assert has_parameters(world, tree)
