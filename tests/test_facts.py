"""Facts of single modules."""

import json
import pickle
import sys
import textwrap
from pathlib import Path

import pytest

import torchmemlint
from torchmemlint.errors import SourceError
from torchmemlint.findings import Position
from torchmemlint.index.conditions import TEST, truth
from torchmemlint.index.conditions import test_holds as holds_for
from torchmemlint.index.facts import ArgFact, AttrFact, CallFact, CallPlace, ClassFacts, FunctionFacts, ModuleFacts
from torchmemlint.index.module_facts import module_facts
from torchmemlint.index.plain import from_plain, positions, shape


def facts(source: str) -> ModuleFacts:
    return module_facts("mod.py", textwrap.dedent(source))


def function(module: ModuleFacts, qualname: str) -> FunctionFacts:
    (found,) = [each for each in module.functions if each.qualname == qualname]
    return found


def klass(module: ModuleFacts, qualname: str) -> ClassFacts:
    (found,) = [each for each in module.classes if each.qualname == qualname]
    return found


def call(owner: FunctionFacts, callee: str) -> CallFact:
    (found,) = [each for each in owner.calls if each.callee == callee]
    return found


def test_imports_of_every_form() -> None:
    module = facts(
        """
        import torch, torch.nn.functional as F
        import os.path
        from torch import no_grad as ng, nn
        from . import sibling
        from ..up.mod import Y
        from .star import *
        def f():
            from late import thing
        """
    )
    assert dict(module.imports) == {
        "torch": "torch",
        "F": "torch.nn.functional",
        "os": "os",
        "os.path": "os.path",
        "ng": "torch.no_grad",
        "nn": "torch.nn",
        "sibling": ".sibling",
        "Y": "..up.mod.Y",
        "*.star": ".star",
        "thing": "late.thing",
    }


def test_functions_are_listed_in_source_order_with_their_owners() -> None:
    module = facts(
        """
        def a():
            def inner(): pass
        class C:
            @deco(1)
            def m(
                self,
                x: "Net" = None,
            ) -> Net:  # colon: here
                pass
            class D:
                async def n(self): pass
        """
    )
    assert [each.qualname for each in module.functions] == ["<module>", "a", "a.inner", "C.m", "C.D.n"]
    method = function(module, "C.m")
    assert (method.owner, method.parent) == ("C", "")
    assert (method.first_row, method.row, method.header_end_row, method.end_row) == (5, 6, 9, 10)
    assert [(p.name, p.annotation, p.default, p.kind) for p in method.params] == [
        ("self", "", "", "positional"),
        ("x", "Net", "None", "positional"),
    ]
    assert method.returns == "Net"
    assert function(module, "a.inner").parent == "a"
    assert function(module, "C.D.n").is_async
    assert dict(klass(module, "C").methods) == {"m": "C.m"}


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("Net", "Net"),
        ("nn.Module", "nn.Module"),
        ("Optional[nn.Module]", "nn.Module"),
        ("typing.Optional['Net']", "Net"),
        ("Net | None", "Net"),
        ("None | Net", "Net"),
        ("Union[Net, None]", "Net"),
        ("Union[Net, Other]", ""),
        ("'Net'", "Net"),
        ("'Optional[Net]'", "Net"),
        ("Annotated[Net, 'doc']", "Net"),
        ("list[Net]", "Net[]"),
        ("Optional[Sequence['Net']]", "Net[]"),
        ("tuple[Net, ...]", "Net[]"),
        ("dict[str, Net]", "Net{}"),
        ("tuple[Net, int]", ""),
        ("tuple[()]", ""),
        ("Callable[()]", ""),
        ("list[list[Net]]", ""),
        ("'not ) valid'", ""),
    ],
)
def test_annotation_names_one_class(annotation: str, text: str) -> None:
    module = facts(f"def f(x: {annotation}): pass")
    assert function(module, "f").params[0].annotation == text


def test_calls_know_their_managers_loops_branch_and_use() -> None:
    module = facts(
        """
        def f(model, loader, phase):
            with torch.no_grad(), lock:
                for batch in loader:
                    if phase == 'train':
                        out = model(batch, flag=True)
                    elif not done:
                        step(out)
            return finish(out)
        """
    )
    f = function(module, "f")
    inner = call(f, "model")
    assert [use.callee for use in inner.managers] == ["torch.no_grad", "lock"]
    assert (inner.loops, inner.branch, inner.used) == (1, ("phase == 'train'",), "other")
    assert f.call_places[inner.place] == CallPlace(6, Position(6, 17), Position(6, 46))
    assert [(arg.keyword, arg.name, arg.const) for arg in inner.args] == [("", "batch", ""), ("flag", "", "True")]
    assert call(f, "step").branch == ("not phase == 'train'", "not done")
    assert call(f, "step").used == "dropped"
    assert call(f, "finish").used == "returned"
    assert call(f, "finish").managers == ()


def test_statement_that_sets_grad_mode_holds_from_there_on() -> None:
    module = facts(
        """
        def f():
            before()
            torch.set_grad_enabled(False)
            between()
            torch.set_grad_enabled(True)
            after()
        """
    )
    f = function(module, "f")
    assert call(f, "before").managers == ()
    assert [use.args[0].const for use in call(f, "between").managers] == ["False"]
    assert [use.args[0].const for use in call(f, "after").managers] == ["True"]
    assert [use.args[0].const for use in f.leaves] == ["True"]


def test_statement_in_one_branch_is_an_alternative_behind_it() -> None:
    module = facts(
        """
        def f(x):
            if x:
                torch.set_grad_enabled(False)
                inside()
            behind()
        def g(x):
            if x:
                torch.set_grad_enabled(False)
                return inside()
            behind()
        """
    )
    (use,) = call(function(module, "f"), "behind").managers
    assert use.alternative is not None
    assert use.alternative.callee == ""
    assert call(function(module, "g"), "behind").managers == ()
    assert [each.callee for each in call(function(module, "g"), "inside").managers] == ["torch.set_grad_enabled"]


def test_exit_stack_holds_to_the_end_of_its_block() -> None:
    module = facts(
        """
        def f():
            with ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                inside()
            behind()
        """
    )
    f = function(module, "f")
    assert [use.callee for use in call(f, "inside").managers] == ["ExitStack", "torch.no_grad"]
    assert call(f, "behind").managers == ()


def test_conditional_manager_has_an_alternative() -> None:
    f = function(facts("def f(x):\n with no_grad() if x else nullcontext():\n  inside()"), "f")
    (use,) = call(f, "inside").managers
    assert (use.callee, use.alternative.callee if use.alternative else None) == ("no_grad", "nullcontext")


def test_dotted_text_of_callees() -> None:
    module = facts(
        """
        def f(self, xs):
            super().forward(xs)
            get()(1)
            self.layers[0].step()
            (a or b).validate()
            [g(x) for x in xs]
            h(lambda: later())
            len(xs)
        """
    )
    f = function(module, "f")
    assert [each.callee for each in f.calls] == [
        "super().forward", "get", "get()", "self.layers[].step", "?.validate", "g", "later", "h",
    ]  # fmt: skip
    assert call(f, "g").loops == 1
    assert call(f, "later").deferred
    assert not call(f, "h").deferred


@pytest.mark.parametrize("argument", ["lambda x: x * 2", "..."])
def test_a_formula_or_an_ellipsis_is_not_none(argument: str) -> None:
    (arg,) = call(function(facts(f"def f():\n    g({argument})\n"), "f"), "g").args
    missing, given = TEST.match("fn is None"), TEST.match("fn")
    assert missing is not None
    assert given is not None
    assert holds_for(missing, arg.const) is False
    assert holds_for(given, arg.const) is True
    assert truth(arg.const)


def test_own_function_named_like_a_builtin_is_kept() -> None:
    module = facts("def print(x): pass\ndef f(): print(1)")
    assert [place.row for place in function(module, "f").call_places] == [2]


def test_bound_names_locals_and_reads() -> None:
    module = facts(
        """
        def f(a, models):
            net = Net(3)
            net = net.to("cuda")
            twice = A()
            twice = B()
            alias = a.b
            x, y = one, two()
            for model in models: pass
            register(callback, a)
            global G
            G = 1
            return helper
        """
    )
    f = function(module, "f")
    assert dict(f.bound) == {"net": "Net()", "alias": "a.b", "x": "one", "y": "two()", "model": "models[]"}
    assert f.locals == {"a", "models", "net", "twice", "alias", "x", "y", "model"}
    assert {"callback", "helper"} <= f.reads
    assert not {"a", "net", "register"} & f.reads


def test_words_of_a_function_hold_its_decorators_and_closures() -> None:
    module = facts(
        """
        @torch.no_grad()
        def f():
            def g(): loss.backward(retain_graph=True)
        """
    )
    assert {"torch", "no_grad", "loss", "backward", "retain_graph"} <= function(module, "f").names


def test_attributes_of_self() -> None:
    module = facts(
        """
        class C(Base[int], metaclass=M):
            size: int = 3
            model: Net
            def __init__(self, net: Net, n=1):
                self.net = net
                self.net = self.net.cuda()
                self.own = Own()
                self.losses, self.count = [], 0
                self.blocks = nn.ModuleList([Block(i) for i in range(n)])
                def late(): self.inner = 1
        """
    )
    c = klass(module, "C")
    assert c.bases == ("Base",)
    attrs = {attr.name: attr for attr in c.attrs}
    assert [(a.name, a.kind, a.value, a.const, a.method) for a in c.attrs if a.name in ("net", "own", "losses", "count")] == [
        ("net", "name", "net", "", "C.__init__"),
        ("own", "call", "Own()", "", "C.__init__"),
        ("losses", "list", "", "", "C.__init__"),
        ("count", "const", "", "0", "C.__init__"),
    ]
    assert (attrs["size"].const, attrs["size"].method) == ("3", "")
    assert attrs["model"].annotation == "Net"
    assert attrs["blocks"].element == "Block()"
    assert attrs["inner"].method == "C.__init__.late"


def test_generator_and_wrapping_facts() -> None:
    module = facts(
        """
        def manager():
            with torch.no_grad():
                yield
        def decorate(fn):
            return torch.no_grad()(fn)
        def choose(x):
            return torch.no_grad() if x else nullcontext()
        """
    )
    assert function(module, "manager").is_generator
    assert [[use.callee for use in at] for at in function(module, "manager").yields] == [["torch.no_grad"]]
    assert [use.callee for use in function(module, "decorate").wraps] == ["torch.no_grad"]
    (use,) = function(module, "choose").returned
    assert use.alternative is not None


def test_every_statement_of_the_grammar_is_walked() -> None:
    module = facts(
        """
        async def f(p):
            async with a() as b: c()
            async for d in e(): g()
            while h(): i()
            try: j()
            except k() as l: m()
            else: n()
            finally: o()
            assert q(), r()
            raise s() from t()
            del u()[0]
            match v():
                case [w, *rest] if x(): y()
                case {"k": z, **others}: aa()
            bb = (cc := dd())
            ee += ff()
            await gg()
            return [*hh(), f"{ii()!r:{jj()}}", kk()[ll():mm()], {**nn()}, oo() if pp() else qq()]
        """
    )
    f = function(module, "f")
    wanted = {*"aceghijkmnoqrstuvxy", "aa", "dd", "ff", "gg", "hh", "ii", "jj", "kk", "ll", "mm", "nn", "oo", "pp", "qq"}
    assert {each.callee for each in f.calls} == wanted
    assert {"b", "d", "l", "w", "rest", "z", "others", "bb", "cc", "ee"} <= f.locals


@pytest.mark.parametrize(
    ("source", "row", "words"),
    [
        ("\ndef f(:\n  pass\n", 2, "invalid syntax"),
        ("x = (1\n", 1, "never closed"),
        ("a\0b", 1, ""),
        (f"x = {'(' * 1000}1{')' * 1000}", 1, "nest"),
        ("x = " + "-" * 300 + "1", 1, "200 levels"),
        ("x = " + "+".join(["1"] * 50_000), 1, "200 levels"),
        ("".join("    " * i + "if x:\n" for i in range(90)) + "    " * 90 + "x = " + "not " * 150 + "1", 91, "200 levels"),
    ],
)
def test_bad_source_is_a_source_error(source: str, row: int, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        module_facts("bad.py", source)
    assert caught.value.row == row
    assert words in caught.value.message or "nested" in caught.value.message


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the syntax is known here")
def test_newer_syntax_names_the_python_that_it_needs() -> None:
    with pytest.raises(SourceError, match=r"needs Python 3\.14"):
        module_facts("new.py", "x = t'{y}'\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_rows_are_those_of_the_tokenizer(newline: str) -> None:
    module = module_facts("m.py", newline.join(["x = '\x0c'", "def f(", "  a,", "):", "  return a", ""]))
    assert (function(module, "f").row, function(module, "f").header_end_row, module.rows) == (2, 4, 5)


def test_plain_form_survives_json() -> None:
    module = facts(
        """
        import torch
        class C(torch.nn.Module):
            def forward(self, x, *a, k=1, **kw):
                with torch.no_grad() if x else y():
                    return self.f(x, not x, k=-1)
        """
    )
    assert from_plain(shape(module), positions(module)) == module


def test_what_is_beyond_doubt() -> None:
    module = facts(
        """
        import json, os.path
        from a import b
        try:
            from c import d
        except ImportError:
            d = None
        level, once, count = None, 0, 1
        def f(x, y):
            import z
            y = x
            global count
            x.a, x.b[0] = 1, 2
            x.c += 1
            setattr(x, "e", 3)
        def f(): pass
        class C(metaclass=M):
            def g(self, names):
                self.own = 1
                setattr(self, names[0], 1)
                names.__dict__.update(names)
        """
    )
    top, method = module.functions[0], function(module, "C.g")
    assert module.needs == ("json", "os.path", "b")
    assert top.unsure == {"C", "count", "d", "f"}
    assert top.constants == (("level", "None"), ("once", "0"))
    assert method.stores == {"self*", "*"}
    first = module.functions[1]
    assert first.unsure == {"y", "z"}
    assert first.stores == {"a", "c", "e"}
    assert [param.required for param in method.params] == [True, True]
    assert "*" in facts("from a import *").functions[0].unsure


@pytest.mark.slow
def test_facts_survive_the_way_to_another_process() -> None:
    folder = Path(torchmemlint.__file__).parent
    texts = ["", "x = 1\n", "class C: pass\n", "f(x)\n", *(path.read_text(encoding="utf-8") for path in folder.glob("*/*.py"))]
    modules = [module_facts(f"m{number}.py", text) for number, text in enumerate(texts)]
    sent = pickle.loads(pickle.dumps(modules))
    assert sent == modules
    calls = [call for module in sent for each in module.functions for call in each.calls]
    attrs = [attr for module in sent for each in module.classes for attr in each.attrs]
    assert {type(call) for call in calls} == {CallFact}
    assert {type(arg) for call in calls for arg in call.args} == {ArgFact}
    assert {type(attr) for attr in attrs} == {AttrFact}
    assert {type(each) for module in sent for each in module.functions} == {FunctionFacts}


@pytest.mark.parametrize("plain", [None, [], {"path": 1}, ["p", [], [], [["short"]], []], ["p", [], [], [], [["C"]]]])
def test_other_plain_data_is_refused(plain: object) -> None:
    with pytest.raises(ValueError, match="not the plain form"):
        from_plain(json.dumps(plain), "[[[1, 1, 1, 1]], [], 1]")


@pytest.mark.parametrize(
    "numbers",
    ["", "1", "[]", "[[], [], 1]", "[[[1, 1, 1]], [], 1]", "[[[1, 1, 1, 2, 0]], [], 1]", "[[[1, 1, 1, 2]], [[1, 1]], 1]"],
)
def test_other_positions_are_refused(numbers: str) -> None:
    module = facts("f()\n")
    assert positions(module) == "[[[1,1,1,1,0,0,1,0,4]],[],1,false]"
    with pytest.raises(ValueError, match="not the plain form"):
        from_plain(shape(module), numbers)
