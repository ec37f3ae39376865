"""Pictures whose files are missing, and pretrained models without their files: made up where a library reads them.

A library is changed right after its import, so a program that does not use it does not wait for it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from torchmemlint.budget.worker.checkpoints import sizes_of
from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.putoff import LENGTH
from torchmemlint.budget.worker.unsized import Unsized
from torchmemlint.confirm.worker.standins import StandIn

WIDTH, HEIGHT = 500, 375
"""The size of a picture that is missing: the median of ImageNet's, as for `ImageFolder`."""


class Data(Protocol):
    """What notes the guesses (``outside.Data``)."""

    def guess(self, words: str, short: str) -> None: ...
    def assume(self, words: str) -> None: ...


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module once that is imported."""

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self._changes = dict(changes)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The module's own, with a loader that changes it."""
        change = self._changes.pop(fullname, None)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        begin = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            begin(module)
            change(module)

        put(spec.loader, "exec_module", exec_module)
        return spec


def install(data: Data) -> None:
    """Watch the imports of libraries that read pictures or pretrained models; those that are imported are changed now."""
    transformers = _Transformers(data)
    changes: dict[str, Callable[[Any], None]] = {
        "PIL.Image": lambda module: _pillow(module, data),
        "cv2": lambda module: _reader(module, "imread", data, True),
        "imageio": lambda module: _reader(module, "imread", data),
        "imageio.v2": lambda module: _reader(module, "imread", data),
        "skimage.io": lambda module: _reader(module, "imread", data),
        "timm.models._builder": lambda module: put(module, "load_pretrained", lambda *args, **kwargs: None),
        "transformers.configuration_utils": transformers.configurations,
        "transformers.modeling_utils": transformers.models,
        "transformers.tokenization_utils_base": transformers.tokenizers,
        "transformers.models.auto.tokenization_auto": transformers.auto_tokenizers,
    }
    for name in [name for name in changes if name in sys.modules]:
        changes.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(changes))


# -- pictures


def _is_missing(path: Any) -> bool:
    if isinstance(path, (StandIn, Unsized)):
        return True
    return isinstance(path, (str, os.PathLike)) and not os.path.exists(path)


def _noted(data: Data) -> None:
    data.guess(f"pictures are missing; {WIDTH}×{HEIGHT} was assumed", f"pictures of {WIDTH}×{HEIGHT}")


def _pillow(module: Any, data: Data) -> None:
    first = module.open

    def opened(file: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_missing(file):
            return first(file, *args, **kwargs)
        _noted(data)
        return module.new("RGB", (WIDTH, HEIGHT))

    put(module, "open", opened)


def _reader(module: Any, name: str, data: Data, flags: bool = False) -> None:
    """A function that reads a picture into an array; with ``flags``, as OpenCV's, 0 stands for grey."""
    first = getattr(module, name)

    def read(file: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_missing(file):
            return first(file, *args, **kwargs)
        _noted(data)
        grey = flags and (args[:1] == (0,) or kwargs.get("flags") == 0)
        return importlib.import_module("numpy").zeros((HEIGHT, WIDTH) if grey else (HEIGHT, WIDTH, 3), "uint8")

    put(module, name, read)


# -- transformers


class _Transformers:
    """Configurations, models and tokenizers of checkpoints that are not here."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._words = 0

    def configurations(self, module: Any) -> None:
        """A checkpoint's configuration is that of its name, else the default of its class."""
        kind = module.PretrainedConfig
        first = kind.get_config_dict.__func__

        def get_config_dict(cls: Any, name: Any, /, **kwargs: Any) -> Any:
            try:
                if not isinstance(name, (StandIn, Unsized)):
                    return first(cls, name, **kwargs)
            except Exception:  # not on this disk
                pass
            auto = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
            family, values, known = sizes_of(str(name), getattr(cls, "model_type", ""), list(auto.keys()))
            if not family:
                raise OSError(f"{name}: its configuration is not known, and nothing is downloaded")
            if not known:
                self._data.guess(
                    f"the configuration of `{name}` is not known; the default of {family} was assumed",
                    f"the configuration of {name} (a size of a layer)",
                )
            else:
                self._data.assume(f"`{name}` has the sizes of its published configuration, and no weights")
            return {"model_type": family, **values}, {key: item for key, item in kwargs.items() if key not in _OF_LOADING}

        put(kind, "get_config_dict", classmethod(get_config_dict))

    def models(self, module: Any) -> None:
        """A model of its configuration."""
        of = self

        def from_pretrained(cls: Any, name: Any = None, /, *args: Any, config: Any = None, **kwargs: Any) -> Any:
            kind = kwargs.pop("torch_dtype", None) or kwargs.pop("dtype", None)
            for extra in _OF_LOADING:
                kwargs.pop(extra, None)
            loading = bool(kwargs.pop("output_loading_info", False))
            if not isinstance(config, importlib.import_module("transformers").PretrainedConfig):
                config, kwargs = cls.config_class.from_pretrained(config or name, return_unused_kwargs=True, **kwargs)
            else:
                for key in [key for key in kwargs if hasattr(config, key)]:
                    setattr(config, key, kwargs.pop(key))
            of._words = int(getattr(config, "vocab_size", 0) or 0)
            model = cls(config, *args, **kwargs)
            kind = getattr(torch, kind, None) if isinstance(kind, str) else kind
            model = (model.to(kind) if isinstance(kind, torch.dtype) else model).eval()
            return (model, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}) if loading else model

        put(module.PreTrainedModel, "from_pretrained", classmethod(from_pretrained))

    def tokenizers(self, module: Any) -> None:
        """A tokenizer of a vocabulary that is not here."""
        first = module.PreTrainedTokenizerBase.from_pretrained.__func__
        put(module.PreTrainedTokenizerBase, "from_pretrained", classmethod(self._tokenizer(first)))

    def auto_tokenizers(self, module: Any) -> None:
        """``AutoTokenizer`` likewise."""
        put(
            module.AutoTokenizer, "from_pretrained", classmethod(self._tokenizer(module.AutoTokenizer.from_pretrained.__func__))
        )

    def _tokenizer(self, first: Any) -> Any:
        def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if os.path.isdir(name):
                    return first(cls, name, *args, **kwargs)
            except Exception:  # only a folder of that name
                pass
            family = str(cls.__name__).split("Tokenizer")[0].lower()
            auto = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
            family, values, _ = sizes_of(str(name), "" if family == "auto" else family, list(auto.keys()))
            words = int(
                values.get("vocab_size", 0) or (getattr(auto[family](), "vocab_size", 0) if family in auto else 0) or 1000
            )
            return Tokenizer(self._data, str(name), words)

        return from_pretrained


_OF_LOADING = (
    "cache_dir", "force_download", "local_files_only", "token", "use_auth_token", "revision", "use_safetensors", "from_tf", "from_flax",
    "ignore_mismatched_sizes", "low_cpu_mem_usage", "device_map", "max_memory", "offload_folder", "trust_remote_code", "state_dict",
    "weights_only", "subfolder", "variant", "resume_download", "proxies", "code_revision", "mirror", "from_auto", "_from_auto", "adapter_kwargs",
)  # fmt: skip
"""Arguments of ``from_pretrained`` that say how files are found and read."""


class Encoded(dict[str, Any]):
    """What a tokenizer gives: read by a key or as an attribute."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)

    def to(self, *args: Any, **kwargs: Any) -> Encoded:
        """On the device."""
        return Encoded({name: value.to(*args, **kwargs) for name, value in self.items()})


class Tokenizer:
    """Every text has as many tokens as ``max_length`` says, or ``LENGTH``."""

    def __init__(self, data: Data, name: str, words: int) -> None:
        self._data, self._name, self._words = data, name, words
        self.model_max_length = 512
        self.padding_side = self.truncation_side = "right"

    def __len__(self) -> int:
        return self._words

    @property
    def vocab_size(self) -> int:
        """Of the model's configuration."""
        return self._words

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith(("_token_id", "_token_type_id")):
            return 0
        return "[x]" if name.endswith("_token") else StandIn(f"tokenizer.{name}")

    def _length(self, wanted: Any) -> int:
        if isinstance(wanted, int):
            return wanted
        self._data.guess(f"texts were taken to have {LENGTH} tokens", f"the length {LENGTH} of texts")
        return LENGTH

    def __call__(self, text: Any = None, text_pair: Any = None, **kwargs: Any) -> Any:
        length = self._length(kwargs.get("max_length"))
        count = len(text) if isinstance(text, (list, tuple)) and not kwargs.get("is_split_into_words") else 0
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if kwargs.get("return_token_type_ids") else [])]
        if kwargs.get("return_tensors") == "pt":
            return Encoded({name: torch.ones((count or 1, length), dtype=torch.int64) for name in names})
        one: Any = [1] * length
        return Encoded({name: [list(one) for _ in range(count)] if count else list(one) for name in names})

    encode_plus = batch_encode_plus = __call__

    def encode(self, text: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The numbers alone."""
        return self(text, **kwargs)["input_ids"]

    def tokenize(self, text: Any = None, **kwargs: Any) -> list[str]:
        """A word for each token."""
        return ["x"] * (len(text.split()) if isinstance(text, str) else self._length(None))

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """One number for each."""
        return 1 if isinstance(tokens, str) else [1] * len(tokens)

    def pad(self, features: Any, **kwargs: Any) -> Any:
        """Those of a collator: all have one length here."""
        rows: Sequence[Any] = features if isinstance(features, (list, tuple)) else [features]
        return Encoded({name: torch.as_tensor([row[name] for row in rows]) for name in rows[0]})

    def add_tokens(self, tokens: Any, *args: Any, **kwargs: Any) -> int:
        """The vocabulary grows."""
        if isinstance(tokens, dict):
            tokens = [one for item in tokens.values() for one in (item if isinstance(item, (list, tuple)) else [item])]
        count = len(tokens) if isinstance(tokens, (list, tuple)) else 1
        self._words += count
        return count

    add_special_tokens = add_tokens

    def decode(self, *args: Any, **kwargs: Any) -> str:
        """No text."""
        return ""

    def batch_decode(self, rows: Any, *args: Any, **kwargs: Any) -> list[str]:
        """No texts."""
        return [""] * len(rows)

    def get_vocab(self) -> dict[str, int]:
        """As many words as the model has."""
        return {f"x{index}": index for index in range(self._words)}
