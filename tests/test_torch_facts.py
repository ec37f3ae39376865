"""The table of torch knowledge: it is consistent, its names exist, and its effects are what torch does when it is run."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from torchmemlint.errors import TorchFactsError
from torchmemlint.semantics.models import operations
from torchmemlint.semantics.roots import assembly
from torchmemlint.torch_facts import TORCH, TorchFacts, loader
from torchmemlint.torch_facts.words import Effect

# --- the reader -------------------------------------------------------------------------------------------------------


def group(table: str, names: str, **words: object) -> str:
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in words.items()]
    return f"[[{table}]]\n" + "\n".join(lines) + f"\nnames = '''{names}'''\n"


def parse(text: str) -> TorchFacts:
    return loader.parse({"some.toml": text})


def test_operations_are_functions_and_methods() -> None:
    facts = parse(group("operations", "exp\nlog", effect="keep", source="x"))
    assert facts.functions == {"torch.exp": "keep", "torch.log": "keep"}
    assert facts.methods == {"exp": "keep", "log": "keep"}


def test_names_stand_under_each_module() -> None:
    facts = parse(group("functions", "no_grad", effect="grad-off", source="x", under=["torch", "torch.autograd"]))
    assert facts.functions == {"torch.no_grad": "grad-off", "torch.autograd.no_grad": "grad-off"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (group("functions", "a.b a.b", effect="keep", source="x"), "twice"),
        (group("functions", "a.b", effect="keep", source="x") + group("functions", "a.b", effect="cut", source="x"), "twice"),
        (
            group("operations", "exp", effect="keep", source="x") + group("methods", "exp", effect="cut", source="x"),
            "'exp' twice, as 'keep' and as 'cut'",
        ),
        (
            group("functions", "a.b", effect="keeps", source="x"),
            "some.toml: effect = 'keeps' is none of .*torch_facts/words.py",
        ),
        (group("functions", "a.b", effect="keep", source=""), r"some.toml: a group of \[functions\] has no source"),
        (group("functions", " ", effect="keep", source="x"), "no `names`"),
        ("[[functions]]\neffect = 'keep'\nsource = 'x'\nnames = ['a.b']\n", "no `names`, a string of names"),
        (group("function", "a.b", effect="keep", source="x"), r"some.toml: nothing reads \[function\]"),
        (group("classes", "a.B", kind="modul", source="x"), "'modul' is none of"),
        (group("hooks", "f f", effect="grad-off", source="x", bases=["a.B"]), "twice"),
        (group("kind_methods", "f", kind="scaler", effect="keep-ish", source="x"), "'keep-ish' is none of"),
        (group("cut_dtypes", "a a", source="x"), "twice"),
        ("[[functions]\n", "some.toml is not TOML"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(TorchFactsError, match=complaint):
        parse(text)


def test_a_name_that_two_libraries_claim_is_refused() -> None:
    one, other = (group("functions", "a.b", effect=effect, source="x") for effect in ("keep", "cut"))
    with pytest.raises(TorchFactsError, match=r"'a\.b' twice, as 'keep' and as 'cut'"):
        loader.parse({"one.toml": one, "other.toml": other})


def test_pairs_are_read_and_a_key_stands_once() -> None:
    assert parse(group("names", "gradient=grad data=data", source="x")).names == {"gradient": "grad", "data": "data"}
    with pytest.raises(TorchFactsError, match="'gradient' twice, as 'grad' and as 'data'"):
        parse(group("names", "gradient=grad gradient=data", source="x"))


def test_words_of_several_libraries_are_put_together() -> None:
    one, other = (group("words", name, asked="arrays", source="x") for name in ("numpy", "pandas"))
    assert loader.parse({"one.toml": one, "other.toml": other}).words == {"arrays": {"numpy", "pandas"}}


def test_patterns_stand_under_each_module() -> None:
    text = "[[class_patterns]]\nkind = 'module'\nunder = ['a', 'b.c']\npattern = '[A-Z]\\w+'\nsource = 'x'\n"
    facts = parse(text)
    assert [facts.class_kind(name) for name in ("a.Net", "b.c.Net", "b.Net", "a.net")] == ["module", "module", None, None]


def test_an_effect_without_a_handler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assembly.check()
    monkeypatch.delitem(operations.EFFECTS, Effect.PACK)
    with pytest.raises(LookupError, match=r"no handler for the effect 'pack' of torch_facts: write one in semantics/models"):
        assembly.check()


def test_a_file_of_a_library_is_about_that_library() -> None:
    """Names and bases in ``skorch.toml`` are skorch's."""
    aliases = {
        "abseil.toml": {"absl"},
        "lightning.toml": {"lightning", "pytorch_lightning", "lightning_fabric"},
        "python.toml": {*sys.stdlib_module_names, "builtins"},
        "torch.toml": {"torch", "torch_npu", "torch_musa", "torch_mlu", "builtins"},
        "torch_optimizer.toml": {"torch_optimizer", "pytorch_optimizer", "timm", "bitsandbytes"},
        "transformers.toml": {"transformers", "diffusers", "optimum", "timm"},
    }
    for path in sorted(Path(loader.__file__).parent.glob("*.toml")):
        allowed = aliases.get(path.name, {path.stem})
        facts = loader.parse({path.name: path.read_text(encoding="utf-8")})
        names = [*facts.functions, *facts.classes, *facts.runners, *facts.servers, *facts.inert_calls, *facts.package_effects]
        names += [*(base for base, _ in facts.hooks), *facts.class_patterns, *facts.function_patterns]
        assert {name.partition(".")[0] for name in names} <= allowed, path.name


def test_functions_of_tensors_refuse_anything_else() -> None:
    torch = the_torch()
    for name in TORCH.words["from-arrays"]:
        with pytest.raises(TypeError):
            resolve(name)(torch.zeros(1))
    for name in TORCH.words["tensors-only"]:
        function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
        with pytest.raises(TypeError):
            function("text", "text") if name not in ("cat", "stack") else function(["text"])


def test_the_table_survives_pickling_and_is_read_once() -> None:
    assert pickle.loads(pickle.dumps(TORCH)) == TORCH
    assert loader.load() is TORCH


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("torch.no_grad", "grad-off"),
        ("torch.autograd.grad_mode.no_grad", "grad-off"),
        ("torch.nn.functional.cross_entropy", "loss"),
        ("numpy.mean", "number"),
        ("sklearn.metrics.f1_score", "number"),
        ("torchvision.models.resnet18", "module"),
        ("torchvision.models.detection.fasterrcnn_resnet50_fpn", "module"),
        ("torchvision.models.list_models", None),
        ("transformers.AutoModelForCausalLM.from_pretrained", "module"),
        ("transformers.BertModel.from_pretrained", "module"),
        ("transformers.AutoTokenizer.from_pretrained", None),
        ("transformers.AutoConfig.from_pretrained", None),
        ("mycode.numpy.mean", None),
    ],
)
def test_function_effect(name: str, effect: str | None) -> None:
    assert TORCH.function_effect(name) == effect
    assert TORCH.function_effect(name) == effect  # the second answer comes from the memory of the first


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.nn.Linear", "module"),
        ("torch.nn.ReLU", "module-noparam"),
        ("torch.nn.CrossEntropyLoss", "loss"),
        ("lightning.pytorch.LightningModule", "lightning-module"),
        ("transformers.BertForSequenceClassification", "hf-model"),
        ("transformers.models.bert.modeling_bert.BertModel", "hf-model"),
        ("transformers.DataCollatorForLanguageModeling", None),
        ("transformers.BertTokenizer", None),
        ("torchmetrics.classification.BinaryAccuracy", "metric"),
        ("torchmetrics.functional.accuracy", None),
        ("torchvision.models.ResNet", "module"),
        ("torchvision.models.ResNet18_Weights", None),
        ("torchvision.transforms.Resize", "module-noparam"),
        ("torchvision.transforms.v2.Compose", "module-noparam"),
        ("torchvision.transforms.InterpolationMode", None),
        ("collections.OrderedDict", None),
    ],
)
def test_class_kind(name: str, kind: str | None) -> None:
    assert TORCH.class_kind(name) == kind


@cache
def the_torch() -> Any:
    """torch, or a skip. Cached, because the tests below ask for it hundreds of thousands of times."""
    return pytest.importorskip("torch")


# --- the names exist --------------------------------------------------------------------------------------------------

ABSENT = {
    **{f"torch.{device}.empty_cache": "needs that vendor's extension" for device in ("npu", "mlu", "musa", "hpu")},
    **{f"torch.{device}.set_per_process_memory_fraction": "needs that vendor's extension" for device in ("npu", "mlu", "musa")},
    "torch.utils.tensorboard.SummaryWriter": "needs the tensorboard package",
    "torch.utils.tensorboard.writer.SummaryWriter": "needs the tensorboard package",
}
ABSENT_METHODS = {method: "needs that vendor's extension" for method in ("npu", "mlu", "musa", "hpu")}


def resolve(name: str) -> Any:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def resolves(name: str) -> bool:
    try:
        resolve(name)
    except AttributeError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_every_torch_name_exists() -> None:
    the_torch()
    names = [*TORCH.functions, *TORCH.classes, *TORCH.oom_exceptions, *TORCH.cut_dtypes, *TORCH.inert_calls]
    ours = {name for name in names if name.startswith(("torch.", "builtins.", "math."))}
    missing = {name for name in ours if not resolves(name)}
    assert missing <= set(ABSENT), sorted(missing - set(ABSENT))
    assert set(ABSENT) <= ours, "a name is excused that the table does not have"


def test_every_method_and_attribute_exists() -> None:
    torch = the_torch()
    tensor_names = {*TORCH.methods, *TORCH.attributes}
    missing = {name for name in tensor_names if not hasattr(torch.Tensor, name)}
    assert missing == set(ABSENT_METHODS)
    evidence = TORCH.words["module-evidence"] | TORCH.words["sure-module-evidence"]
    module_names = {*TORCH.module_methods, *evidence}
    assert {name for name in module_names if not hasattr(torch.nn.Module, name)} == set()
    assert evidence <= set(TORCH.module_methods)


NOT_NAMES_OF_TORCH = {
    "_orig_mod": "where what torch.compile gives keeps the module, which only a compiled one has",
    "axis": "what torch takes for dim as well, as numpy does",
    "DataLoader": "of torch.utils.data, by its last name",
    "DDP": "what everyone calls DistributedDataParallel",
    "FSDP": "what everyone calls FullyShardedDataParallel",
    "copy": "of dicts, and so of containers that projects derive",
    "float8": "the beginning of float8_e4m3fn and the others",
    "get": "of dicts, and so of containers that projects derive",
    "loss": "stands for every loss function",
    "module": "where DataParallel and its kin keep what they wrap",
    "optimizer": "what schedulers call the optimizer that they are given",
    "preserve_rng_state": "read out of **kwargs",
    "product": "of products that are written out",
    "reduce_loss": "a helper around all_reduce",
    "reduce_mean": "a helper around all_reduce",
    "value": "the argument of fill_, which has no signature",
    "set_memory_fraction": "of backends that are packages of their own",
}
"""Words of torch's table that are not (or no longer) names of torch, with the reason."""
PLACES = """
    Tensor nn.Module nn nn.functional nn.modules.module nn.ModuleList nn.ModuleDict nn.parallel nn.utils.rnn optim.Optimizer
    optim.lr_scheduler.LRScheduler
    nn.utils autograd autograd.Function autograd.function autograd.functional autograd.graph autograd.graph.Node func distributed distributed.fsdp jit amp amp.GradScaler
    cuda compiler profiler utils.checkpoint utils.hooks.RemovableHandle distributions.Distribution linalg backends.cuda.matmul backends
"""


@pytest.mark.filterwarnings("ignore")
def test_every_word_of_the_table_of_torch_is_a_name_of_torch() -> None:
    """A method, a function, a class, an argument, a variable of the environment …: what torch itself says."""
    torch = the_torch()
    text = (Path(loader.__file__).parent / "torch.toml").read_text(encoding="utf-8")
    facts = loader.parse({"torch.toml": text})
    words = {word for group in facts.words.values() for word in group} | {*facts.names.values()}
    layers = torch.nn.Module(), torch.nn.BatchNorm1d(1), torch.nn.LayerNorm(1)
    places = [torch, *layers, *(resolve(f"torch.{place}") for place in PLACES.split())]
    others = {"torch", *TORCH.words["allocator-variables"], *ABSENT_METHODS}
    others |= set(inspect.signature(torch.utils.checkpoint.checkpoint).parameters)
    others |= set(inspect.signature(torch.Tensor.backward).parameters)
    others |= set(inspect.signature(torch.optim.Optimizer.zero_grad).parameters)
    others |= set(inspect.signature(torch.inference_mode).parameters)
    others |= set(inspect.signature(torch.load).parameters)
    others |= set(inspect.signature(torch.nn.Module.load_state_dict).parameters)
    unknown = {
        word
        for word in words - others
        if not (resolves(word) if word.startswith("torch.") else any(hasattr(place, word) for place in places))
    }
    assert unknown == set(NOT_NAMES_OF_TORCH) | TORCH.words["removed-from-torch"]


def test_usual_names_stand_for_modules_of_torch() -> None:
    the_torch()
    assert TORCH.usual_names["F"] == "torch.nn.functional"
    assert {name for name, module in TORCH.usual_names.items() if not inspect.ismodule(resolve(module))} == set()


def test_every_public_name_of_the_tensor_is_known() -> None:
    torch = the_torch()
    known = {*TORCH.methods, *TORCH.attributes}
    unknown = {name for name in dir(torch.Tensor) if not name.startswith("_") and name not in known}
    assert unknown == UNLISTED_METHODS


UNLISTED_METHODS = frozenset(
    # internal, quantized, or removed from torch: nobody's training loop has them
    """const_data_ptr eig geqrf hash_tensor index is_coalesced lstsq module_load q_per_channel_axis
    q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme reinforce resize resize_as resize_as_
    slice_inverse smm solve sspaddmm storage_type symeig unsafe_chunk unsafe_split unsafe_split_with_sizes""".split()  # noqa: SIM905
)


def test_kinds_of_torch_classes() -> None:
    torch = the_torch()
    bases = {
        "module": torch.nn.Module,
        "module-noparam": torch.nn.Module,
        "loss": torch.nn.Module,
        "ema": torch.nn.Module,
        "optimizer": torch.optim.Optimizer,
        "scheduler": torch.optim.lr_scheduler.LRScheduler,
        "loader": torch.utils.data.DataLoader,
        "dataset": torch.utils.data.Dataset,
        "distribution": torch.distributions.Distribution,
        "scaler": torch.amp.GradScaler,
    }
    wrong = [
        name
        for name, kind in TORCH.classes.items()
        if name.startswith("torch.") and name not in ABSENT and kind in bases and not issubclass(resolve(name), bases[kind])
    ]
    assert wrong == []
    modules = {
        f"torch.nn.{name}"
        for name, value in vars(torch.nn).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module)
    }
    assert modules - set(TORCH.classes) == set()


def test_modules_without_parameters_have_none() -> None:
    the_torch()
    built = 0
    for name, kind in TORCH.classes.items():
        if kind != "module-noparam" or not name.startswith("torch."):
            continue
        for arguments in ((), (2,), (2, 2), (2, 2, 2), (1, (2, 1))):
            try:
                module = resolve(name)(*arguments)
            except (TypeError, ValueError):
                continue
            assert not list(module.parameters()), name
            built += 1
            break
    assert built >= 83


# --- the effects are true ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What one run of a function showed."""

    given: bool
    """A tensor was among the arguments (and then one of them was attached to a graph)."""
    grads: tuple[bool, ...]
    """For each tensor in the result: does it are attached to a graph?"""
    shares: bool
    """Some tensor of the result has a graph and shares the storage of a tensor argument."""
    integers: tuple[bool, ...]
    """For each tensor in the result: is its dtype one that cannot carry a graph?"""
    receiver_kept: bool
    """The first argument is attached to a graph afterwards and is the result."""


def floats(*shape: int) -> Any:
    """Attached floats in (0.1, 0.9); no leaf, so that in-place operations are allowed."""
    torch = the_torch()
    return (torch.rand(*shape) * 0.8 + 0.1).requires_grad_() * 1.0


def patterns() -> Iterator[tuple[object, ...]]:
    """Argument lists that fit most operations; each call makes fresh tensors."""
    torch = the_torch()
    index = torch.tensor([0, 1, 2, 3])
    square = index[:, None].expand(4, 4)
    mask = torch.eye(4, dtype=torch.bool)

    def x() -> Any:
        return floats(4, 4)

    yield (x(),)
    yield (x(), x())
    yield (x(), 1)
    yield (x(), 2)
    yield (x(), 0)
    yield (1, x())
    yield (x(), 0, 1)
    yield (x(), 0, (2, 2))
    yield (x(), 0, index)
    yield (x(), index)
    yield (x(), x(), x())
    yield (x(), (4, 4))
    yield (x(), (0, 1))
    yield (x(), (2, 2))
    yield (x(), [2, 2], 0)
    yield (x(), (4, 4), (4, 1))
    yield (x(), (2, 2), (4, 1))
    yield (x(), x(), (4, 4), (4, 1))
    yield ([x(), x()],)
    yield (x(), 0.5)
    yield (x(), 2, 0, 0.5)
    yield (x(), 0, square)
    yield (x(), 0, square, x())
    yield (x(), 0, square, x(), "sum")
    yield (x(), 0, index, x())
    yield (x(), 0, index, x(), "mean")
    yield (x(), 0, index, 0.5)
    yield (x(), (index,), floats(4))
    yield (x(), index, floats(4))
    yield (x(), 0, 0, 2)
    yield (x(), floats(4), 0, 0)
    yield (x(), floats(2, 4), 0, 0, 2)
    yield (x(), mask)
    yield (x(), mask, 0.0)
    yield (x(), mask, floats(16))
    yield (mask, x(), x())
    yield (x(), "sum")
    yield (torch.tensor([0, 1]), x())
    yield (x(), torch.tensor([0, 1, 2, 3]))
    yield (x(), index, 0.0)
    yield (x(), 2, 0, 1.0)
    yield (floats(4), 2)
    yield (floats(4, 2),)
    yield ("ij,jk->ik", x(), x())
    yield (floats(1, 1, 4, 4),)
    yield (floats(1, 1, 4, 4), 2)
    yield (floats(1, 1, 4, 4), 2.0, 2)
    yield (floats(1, 1, 4, 4), (2, 2))
    yield (floats(1, 1, 4, 4), 2, (2, 2))
    yield (floats(1, 1, 4, 4), floats(1, 1, 3, 3))
    yield (floats(1, 1, 4, 4), floats(1, 4, 4, 2))
    yield (floats(1, 1, 4, 4), floats(1, 4, 4, 2), 0, 0, False)
    yield (floats(1, 4, 4), (4, 4), (2, 2))
    yield (floats(1, 2, 8), 2)
    yield (floats(1, 2, 8), 2.0, 2)
    yield (floats(1, 2, 8), floats(2, 2, 3))
    yield (floats(1, 2, 8), floats(3, 2, 2), floats(2))
    yield (floats(1, 1, 4, 4, 4), 2)
    yield (floats(1, 1, 4, 4, 4), 2.0, 2)
    yield (floats(1, 1, 4, 4, 4), 2, (2, 2, 2))
    yield (floats(1, 1, 4, 4, 4), floats(1, 1, 3, 3, 3))
    yield (floats(1, 2, 3), [1, 1, 4, 4])
    yield (floats(3),)
    yield (floats(3), floats(3))
    yield (floats(3), torch.tensor([True, False, False]))
    yield (floats(1),)
    yield (floats(2, 3, 4), floats(2, 4, 3))
    yield (floats(2, 3, 4), floats(2, 3, 4))
    yield (floats(2, 3, 3), floats(2, 3, 4), floats(2, 4, 3))
    yield (floats(3, 3), floats(2, 3, 4), floats(2, 4, 3))
    yield (floats(4, 3), floats(3))
    yield (floats(4), floats(4, 3), floats(3))
    yield (floats(4, 3), floats(4), floats(3))
    yield (floats(2, 3), floats(2, 3), torch.tensor([1, -1]))
    yield (floats(2, 3), torch.tensor([[1, 0, -1], [0, 2, -1]]))
    yield (floats(2, 3), floats(2, 4), floats(5, 3, 4))
    yield (floats(2, 4), torch.zeros(4), torch.ones(4))
    yield (floats(2, 4), torch.zeros(4), torch.ones(4), floats(4), floats(4), True, 0.1, 1e-5, False)
    yield (floats(2, 4, 3), None, None, None, None, True, 0.1, 1e-5, False)
    yield (floats(2, 4), 0.5, True)
    yield (floats(4, 2, 3).log(), torch.ones(2, 2, dtype=torch.long), torch.tensor([4, 4]), torch.tensor([2, 2]))
    yield (floats(2, 2), floats(2, 2), True, False, 1e-8, 1)
    yield (floats(5, 3), torch.tensor([[0, 1], [2, 3]]))
    yield (torch.tensor([[0, 1], [2, 3]]), floats(5, 3))
    yield (floats(4, 4).triu() + torch.eye(4), floats(4, 1))
    yield (floats(4, 1), floats(4, 4).triu() + torch.eye(4), True)
    yield (torch.eye(4) + 0.0 * x(),)
    yield (torch.eye(4) + 0.0 * x(), torch.tensor([1, 2, 3, 4], dtype=torch.int32), x())
    yield (torch.eye(4) + 0.0 * x(), torch.tensor([1, 2, 3, 4], dtype=torch.int32))
    yield (x(), torch.eye(4) + 0.0 * x(), torch.tensor([1, 2, 3, 4], dtype=torch.int32))
    yield (x(), floats(4), x())
    yield (index,)
    yield (index, index)
    yield (index.float(),)
    yield (index, (4, 4))
    yield (torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]]), floats(4))
    yield (floats(1, 8), 4, 2)
    yield (floats(1, 5, 3) + 0j, 8)
    yield (floats(1, 5, 3) + 0j, 4)
    yield (floats(16), 8, None, None, None, True, "reflect", False, None, True)
    yield (x() + 0j,)
    yield (floats(2, 2, 2, 2), floats(2, 2))
    yield ("float32",)
    yield (torch.float32, torch.float64)
    yield (torch.float32,)
    yield ((2, 2),)
    yield ((2, 2), 1.0)
    yield (3, 3)
    yield (4,)
    yield (0.0, 1.0, 4)
    yield (0, 4, (2,))
    yield ()


def tensors_in(value: object) -> list[Any]:
    torch = the_torch()
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def storages(tensors: list[Any]) -> set[int]:
    torch = the_torch()
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout == torch.strided and tensor.numel()}


def attached_run(function: Callable[..., object], arguments: tuple[object, ...]) -> Seen | None:
    """What a call shows, or None when it fails or has tensor arguments and none of them is attached to a graph.

    A dict as the last argument holds the keyword arguments.
    """
    keywords: dict[str, Any] = {}
    if arguments and isinstance(arguments[-1], dict):
        keywords, arguments = arguments[-1], arguments[:-1]
    given = tensors_in(list(arguments))
    if given and not any(tensor.requires_grad for tensor in given):
        return None
    before = storages(given)
    try:
        result = function(*arguments, **keywords)
    except Exception:
        return None
    found = tensors_in(result)
    return Seen(
        given=bool(given),
        grads=tuple(tensor.requires_grad for tensor in found),
        shares=any(tensor.requires_grad and storages([tensor]) & before for tensor in found),
        integers=tuple(not (tensor.is_floating_point() or tensor.is_complex()) for tensor in found),
        receiver_kept=bool(given) and result is arguments[0] and given[0].requires_grad,
    )


def runs_of(function: Callable[..., object], arguments: Iterable[tuple[object, ...]]) -> list[Seen]:
    """What the first dozen of calls that succeed show."""
    runs = (seen for given in arguments if (seen := attached_run(function, given)) is not None)
    return list(islice(runs, 12))


def integer_runs_succeed(function: Callable[..., object]) -> bool:
    """Some operations only take integers, which have no graph: that they run on them and give tensors is their proof."""
    torch = the_torch()
    for arguments in ((torch.arange(4),), (torch.arange(4), torch.arange(4)), (torch.arange(4), 1), (torch.arange(4), (2, 2))):
        try:
            result = function(*arguments)
        except Exception:
            continue
        if tensors_in(result):
            return not any(tensor.requires_grad for tensor in tensors_in(result))
    return False


def verdict(effect: str, runs: list[Seen], function: Callable[..., object]) -> str:
    """ "proven", "unproven" (nothing that could be run shows it), or what contradicts the table."""
    with_tensors = [seen for seen in runs if seen.grads]
    if effect in ("keep", "loss", "view"):
        attached = [seen for seen in with_tensors if seen.given]
        if any(not any(seen.grads) and not all(seen.integers) for seen in attached):
            return "a floating result has no graph"
        if effect == "view" and attached and not any(seen.shares for seen in attached):
            return f"no result of {len(attached)} runs shares storage"
        return "proven" if any(any(seen.grads) for seen in attached) else "unproven"
    if effect in ("cut", "source"):
        if any(any(seen.grads) for seen in with_tensors):
            return "a result has a graph"
        return "proven" if with_tensors or integer_runs_succeed(function) else "unproven"
    if effect == "mixed-max":
        several = [seen.grads for seen in with_tensors if len(seen.grads) > 1]
        if any(not grads[0] or any(grads[1:]) for grads in several):
            return "not the first of several results, and it alone, has a graph"
        return "proven" if several else "unproven"
    if effect in ("number", "shape", "item"):
        if with_tensors:
            return "a result is a tensor"
        return "proven" if runs else "unproven"
    if effect == "inplace":
        if with_tensors and not any(seen.receiver_kept for seen in with_tensors):
            return "the receiver is not returned with its graph"
        return "proven" if with_tensors else "unproven"
    raise AssertionError(effect)


RUNNABLE = {"keep", "loss", "view", "cut", "source", "mixed-max", "number", "shape", "item", "inplace"}


def own_patterns() -> dict[str, list[tuple[object, ...]]]:
    """Argument lists of operations that none of the common ones fit, by the last part of their name."""
    torch = the_torch()
    h, weights = floats(2, 3), [floats(12, 4), floats(12, 3), floats(12), floats(12)]
    gru = [floats(9, 4), floats(9, 3), floats(9), floats(9)]
    rnn = [floats(3, 4), floats(3, 3), floats(3), floats(3)]
    pooled = torch.nn.functional.max_pool2d(floats(1, 1, 4, 4), 2, return_indices=True)
    pooled_1d = torch.nn.functional.max_pool1d(floats(1, 1, 4), 2, return_indices=True)
    pooled_3d = torch.nn.functional.max_pool3d(floats(1, 1, 4, 4, 4), 2, return_indices=True)
    sparse = floats(4, 4).to_sparse()
    compressed = floats(4, 4).to_sparse_csr()
    attention = (floats(3, 2, 4), floats(3, 2, 4), floats(3, 2, 4), 4, 2, floats(12, 4), floats(12), None, None, False, 0.0)
    return {
        "float_power_": [(floats(4).double(), 2)],
        "affine_grid_generator": [(floats(1, 2, 3), [1, 1, 4, 4], False)],
        "conv_tbc": [(floats(4, 1, 2), floats(3, 2, 2), floats(2))],
        "embedding_bag": [(floats(5, 3), torch.tensor([0, 1, 2]), torch.tensor([0, 2]))],
        "grid_sampler_3d": [(floats(1, 1, 2, 2, 2), floats(1, 2, 2, 2, 3), 0, 0, False)],
        "lstm_cell": [(floats(2, 4), (h, floats(2, 3)), *weights)],
        "gru_cell": [(floats(2, 4), h, *gru)],
        "rnn_tanh_cell": [(floats(2, 4), h, *rnn)],
        "rnn_relu_cell": [(floats(2, 4), h, *rnn)],
        "lstm": [(floats(5, 2, 4), (floats(1, 2, 3), floats(1, 2, 3)), weights, True, 1, 0.0, True, False, False)],
        "gru": [(floats(5, 2, 4), floats(1, 2, 3), gru, True, 1, 0.0, True, False, False)],
        "max_unpool1d": [(*pooled_1d, 2)],
        "max_unpool2d": [(*pooled, 2)],
        "max_unpool3d": [(*pooled_3d, 2)],
        "multi_head_attention_forward": [(*attention, floats(4, 4), floats(4))],
        "segment_reduce": [(floats(4), "sum", {"lengths": torch.tensor([2, 2])})],
        "solve_triangular": [(floats(3, 3).triu(), floats(3, 1), {"upper": True})],
        "nonzero_static": [(floats(4), {"size": 4})],
        "fake_quantize_per_tensor_affine": [(floats(4), 0.1, 0, 0, 255)],
        "fake_quantize_per_channel_affine": [(floats(4), torch.ones(4), torch.zeros(4, dtype=torch.int32), 0, 0, 255)],
        "empty_strided": [((2, 2), (2, 1))],
        "empty_permuted": [((2, 2), (0, 1))],
        "device": [("cpu",)],
        "iinfo": [(torch.int32,)],
        "get_autocast_dtype": [("cpu",)],
        "DoubleTensor": [(floats(2).double(),)],
        "HalfTensor": [(floats(2).half(),)],
        "BFloat16Tensor": [(floats(2).bfloat16(),)],
        "as_subclass": [(floats(2), torch.Tensor)],
        "coalesce": [(sparse,)],
        "indices": [(sparse.coalesce(),)],
        "values": [(sparse.coalesce(),), (compressed,)],
        "crow_indices": [(compressed,)],
        "col_indices": [(compressed,)],
        "sparse_mask": [(floats(4, 4), sparse.detach().coalesce())],
        "__format__": [(floats(1)[0], ".2f")],
    }


def measured(names: dict[str, str], prefix: str) -> tuple[dict[str, str], set[str]]:
    """What contradicts the table, by name; and the names that nothing proved."""
    torch = the_torch()
    torch.manual_seed(0)
    common, own = list(patterns()), own_patterns()
    wrong: dict[str, str] = {}
    unproven: set[str] = set()
    for name, effect in names.items():
        function = resolve(prefix + name)
        arguments = chain(own.get(name.rpartition(".")[2], ()), patterns() if effect == "inplace" else common)
        found = verdict(effect, runs_of(function, arguments), function)
        if found == "unproven":
            unproven.add(name)
        elif found != "proven" and name not in EDGES:
            wrong[name] = f"{effect}: {found}"
    print(f"effects proven by running: {len(names) - len(unproven)} of {len(names)}")
    return wrong, unproven


EDGES = {
    "torch.vander": "with one column it is all ones, which depend on nothing",
    "new": "t.new(u) with a tensor u is an alias of u; from sizes, as it is used, it is a fresh tensor",
}

NOT_RUN = {
    "torch.from_numpy": "takes arrays",
    "torch.frombuffer": "takes buffers",
    "torch.Stream": "a torch built for CUDA raises without a driver",
    "torch.sparse_compressed_tensor": "needs the parts of a sparse matrix",
    "numpy": "refuses a tensor that requires grad: that it has no result with a graph is what the table says",
    "__array__": "as numpy",
    "__index__": "only for integer tensors",
    **dict.fromkeys(("apply_", "map_", "map2_", "resize_", "sparse_resize_"), "refuses a tensor that requires grad"),
    **dict.fromkeys(("resize_as_sparse_", "sparse_resize_and_clear_"), "refuses a tensor that requires grad"),
    **{f"bitwise_{word}_": "only for integer tensors" for word in ("and", "or", "xor", "not", "left_shift", "right_shift")},
    **dict.fromkeys(("gcd_", "lcm_", "int_repr"), "only for integer or quantized tensors"),
    **dict.fromkeys(("ccol_indices", "row_indices"), "as crow_indices, for another layout"),
    **dict.fromkeys(("pin_memory", "record_stream"), "needs a GPU"),
    "to_padded_tensor": "only for nested tensors",
}


def runnable(names: Mapping[str, str]) -> dict[str, str]:
    return {name: effect for name, effect in names.items() if effect in RUNNABLE}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_effects_of_functions_are_measured() -> None:
    the_torch()
    modules = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
    names = {name: effect for name, effect in runnable(TORCH.functions).items() if name.rpartition(".")[0] in modules}
    wrong, unproven = measured(names, "")
    assert wrong == {}
    assert sorted(unproven - set(NOT_RUN)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_effects_of_methods_are_measured() -> None:
    the_torch()
    wrong, unproven = measured(runnable(TORCH.methods), "torch.Tensor.")
    assert wrong == {}
    assert sorted(unproven - set(NOT_RUN)) == []


@pytest.mark.filterwarnings("ignore")
def test_effects_of_attributes_are_measured() -> None:
    the_torch()
    for name, effect in TORCH.attributes.items():
        value = floats(2, 2) + 0j if name == "imag" else floats(2, 2)
        if name == "grad":
            value.retain_grad()
            value.sum().backward()
        seen = attached_run(lambda tensor, name=name: getattr(tensor, name), (value,))
        if seen is None:
            assert name in ("grad_dtype", "volatile"), f"{name} cannot be read"
        elif effect == "view":
            assert seen.grads == (True,), name
            assert seen.shares, name
        elif effect == "cut":
            assert seen.grads == (False,), name
        else:
            assert seen.grads == (), name


def test_tensors_of_cut_dtypes_cannot_require_grad() -> None:
    torch = the_torch()
    for name in TORCH.cut_dtypes:
        dtype = resolve(name)
        if isinstance(dtype, torch.dtype):
            assert not dtype.is_floating_point, name
            assert not dtype.is_complex, name


@pytest.mark.parametrize("before", [True, False])
def test_grad_modes(before: bool) -> None:
    torch = the_torch()
    inside = {"grad-off": False, "grad-on": True, "grad-set": not before}
    for name, effect in TORCH.functions.items():
        if name.startswith("torch.") and effect in inside:
            with torch.set_grad_enabled(before):
                manager = resolve(name)(not before) if effect == "grad-set" else resolve(name)()
                with manager:
                    assert torch.is_grad_enabled() is inside[effect], name


def test_moving_keeps_and_an_integer_dtype_cuts() -> None:
    torch = the_torch()
    x = floats(2)
    assert x.to("cpu").requires_grad
    assert x.cpu().requires_grad
    assert x.type(torch.float64).requires_grad
    for dtype in (torch.int64, torch.bool):
        assert not x.to(dtype).requires_grad
        assert not x.type(dtype).requires_grad
        assert not x.type_as(torch.zeros(1, dtype=dtype)).requires_grad


def test_sampling_cuts_and_log_prob_keeps() -> None:
    torch = the_torch()
    normal = torch.distributions.Normal(floats(2), floats(2))
    shown = {
        "sample": normal.sample(),
        "rsample": normal.rsample(),
        "log_prob": normal.log_prob(torch.zeros(2)),
        "entropy": normal.entropy(),
        "cdf": normal.cdf(torch.zeros(2)),
        "icdf": normal.icdf(torch.full((2,), 0.5)),
    }
    for method, result in shown.items():
        assert result.requires_grad is (TORCH.kind_methods["distribution", method] == "keep"), method


def test_python_builtins() -> None:
    torch = the_torch()
    for name, value in {"abs": floats(2), "sum": floats(2), "max": floats(2), "min": floats(2)}.items():
        assert TORCH.functions[f"builtins.{name}"] == "keep"
        assert resolve(f"builtins.{name}")(value).requires_grad
    assert pow(floats(2), 2).requires_grad
    with pytest.raises(TypeError):
        round(floats(1)[0])
    for name in ("float", "int", "bool", "complex", "str", "repr", "len"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = resolve(f"builtins.{name}")(floats(1))
        assert not isinstance(result, torch.Tensor)


def test_out_of_memory_errors_are_exceptions() -> None:
    the_torch()
    for name in TORCH.oom_exceptions:
        assert issubclass(resolve(name), RuntimeError)


def test_hooks_name_what_their_framework_calls() -> None:
    """The spellings of one base class agree with each other."""
    by_class: dict[str, dict[str, dict[str, str]]] = {}
    for (base, method), effect in TORCH.hooks.items():
        by_class.setdefault(base.rpartition(".")[2], {}).setdefault(base, {})[method] = effect
    for name in ("LightningModule", "Brain", "NeuralNet", "Runner"):
        tables = list(by_class[name].values())
        assert all(table == tables[0] for table in tables), name
    assert TORCH.hooks["pytorch_lightning.LightningModule", "validation_step"] == "grad-off"
    assert TORCH.hooks["lightning.LightningModule", "training_step"] == "backward-return"
    assert TORCH.hooks["transformers.Trainer", "compute_loss"] == "backward-return"
    assert TORCH.hooks["transformers.Trainer", "training_step"] == "grad-on"
    assert TORCH.hooks["transformers.Trainer", "prediction_step"] == "evaluation"
    assert TORCH.handed_networks["transformers.Trainer", "prediction_step"] == 1


@pytest.mark.parametrize("old", sorted(TORCH.renamed))
def test_a_renamed_call_takes_what_the_old_one_took(old: str) -> None:
    the_torch()
    new = TORCH.renamed[old]
    assert new.name in TORCH.versions
    before, after = (
        inspect.signature(vars(what)["__init__"] if isinstance(what, type) else what).parameters
        for what in map(resolve, (old, new.name))
    )
    assert {new.keyword, *new.parameters} <= set(after)
    order = [name for name in before if name != "self"]
    assert tuple(order[: len(new.parameters)]) == new.parameters
    # An omitted argument means the same; autocast's own dtype is the device's, which is the old default unless it was set.
    for name in set(order) & set(after) - {"dtype", "cache_enabled", "bwd"}:
        assert before[name].default == after[name].default


def with_torch(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script whose torch has not read any allocator options yet."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        pytest.skip("this torch does not list its allocator's options")
    clean = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False, env=clean)


REFUSED = {
    "expandable_segments:True,max_split_size_mb:128": False,
    "garbage_collection_threshold:0.6": False,
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": False,
    "expandable_segments:true": True,
    "max_split_size_mb=128": True,
    "max_split_size_mb:10": True,
}
"""Values of the allocator's options, and whether it refuses them."""
EACH_ALONE = """
import os, sys, torch
for value in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            torch._C._accelerator_setAllocatorSettings(value)
        except BaseException:
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each value is set in a copy of one process")
def test_the_allocator_refuses_what_the_rule_says_that_it_refuses() -> None:
    from torchmemlint.rules.allocator.allocator_config_too_late import refusal

    done = with_torch(EACH_ALONE, *REFUSED)
    assert done.returncode == 0, done.stderr
    refused = [line == "True" for line in done.stdout.splitlines()]
    assert refused == [*REFUSED.values()] == [refusal(value) is not None for value in REFUSED]


@pytest.mark.slow
def test_the_allocators_options_are_read_after_torch_is_imported() -> None:
    script = (
        "import os, torch; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:128'; "
        "print(torch._C._accelerator_getAllocatorSettings())"
    )
    done = with_torch(script)
    assert done.stdout.strip() == "max_split_size_mb:128", done.stderr
