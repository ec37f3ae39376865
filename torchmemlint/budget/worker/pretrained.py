"""Pretrained models without their files: made of their configurations.

A library is changed right after its import, so a program that does not use it does not wait for it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchmemlint.budget.worker.checkpoints import sizes_of
from torchmemlint.budget.worker.patch import put
from torchmemlint.confirm.worker.standins import StandIn


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


def install(assume: Callable[[str], None]) -> None:
    """Watch the imports of libraries that read pretrained models; those that are imported are changed now."""
    changes: dict[str, Callable[[Any], None]] = {
        "timm.models._builder": lambda module: put(module, "load_pretrained", lambda *args, **kwargs: None),
        "transformers.configuration_utils": lambda module: _configurations(module, assume),
        "transformers.modeling_utils": _models,
    }
    for name in [name for name in changes if name in sys.modules]:
        changes.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, AfterImport(changes))


# -- transformers


def _configurations(module: Any, assume: Callable[[str], None]) -> None:
    """A checkpoint's configuration is that of its name, else the default of its class."""
    kind = module.PretrainedConfig
    first = kind.get_config_dict.__func__

    def get_config_dict(cls: Any, name: Any, /, **kwargs: Any) -> Any:
        try:
            if not isinstance(name, StandIn):
                return first(cls, name, **kwargs)
        except Exception:  # not on this disk
            pass
        found = sizes_of(str(name), getattr(cls, "model_type", ""))
        if found is None:
            raise OSError(f"{name}: its configuration is not known, and nothing is downloaded")
        assume(f"`{name}` has the sizes of its published configuration, and no weights")
        return {"model_type": found[0], **found[1]}, {key: item for key, item in kwargs.items() if key not in _OF_LOADING}

    put(kind, "get_config_dict", classmethod(get_config_dict))


def _models(module: Any) -> None:
    """A model of its configuration."""

    def from_pretrained(cls: Any, name: Any = None, /, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        kind = kwargs.pop("torch_dtype", None) or kwargs.pop("dtype", None)
        for extra in [key for key, given in kwargs.items() if given is None or key in _OF_LOADING]:
            kwargs.pop(extra)
        loading = bool(kwargs.pop("output_loading_info", False))
        if not isinstance(config, importlib.import_module("transformers").PretrainedConfig):
            config, kwargs = cls.config_class.from_pretrained(config or name, return_unused_kwargs=True, **kwargs)
        else:
            for key in [key for key in kwargs if hasattr(config, key)]:
                setattr(config, key, kwargs.pop(key))
        model = cls(config, *args, **kwargs)
        kind = getattr(torch, kind, None) if isinstance(kind, str) else kind
        model = (model.to(kind) if isinstance(kind, torch.dtype) else model).eval()
        return (model, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}) if loading else model

    put(module.PreTrainedModel, "from_pretrained", classmethod(from_pretrained))


_OF_LOADING = (
    "cache_dir", "force_download", "local_files_only", "token", "use_auth_token", "revision", "use_safetensors", "from_tf", "from_flax",
    "ignore_mismatched_sizes", "low_cpu_mem_usage", "device_map", "max_memory", "offload_folder", "trust_remote_code", "state_dict",
    "weights_only", "subfolder", "variant", "resume_download", "proxies", "code_revision", "mirror", "from_auto", "_from_auto", "adapter_kwargs",
)  # fmt: skip
"""Arguments of ``from_pretrained`` that say how files are found and read."""
