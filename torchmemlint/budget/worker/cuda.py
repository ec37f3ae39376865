"""What CUDA does otherwise than the CPU, for fake tensors that live on the CPU: autocast, dropout, attention, foreach, workspaces.

Each policy names the file of torch 2.13 that it restates.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

from torchmemlint.budget.worker.patch import put
from torchmemlint.budget.worker.tape import WORKSPACES, Tape

aten = torch.ops.aten

# aten/src/ATen/autocast_mode.h, the lists of AutocastCUDA (kCUDA in autocast_mode.cpp)
LOWER = [
    "_convolution.deprecated",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "prelu",
    "addmm",
    "addmv",
    "addr",
    "matmul",
    "einsum",
    "mm",
    "mv",
    "linalg_vecdot",
    "linear",
    "addbmm",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "linalg_multi_dot",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "_scaled_dot_product_flash_attention",
    "scaled_dot_product_attention",
    "conv1d.padding",
    "conv2d.padding",
    "conv3d.padding",
]
SINGLE = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
    "group_norm",
    "frobenius_norm.dim",
    "nuclear_norm",
    "nuclear_norm.dim",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "renorm",
    "logsumexp",
    "upsample_nearest1d",
    "_upsample_nearest_exact1d",
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "_upsample_bilinear2d_aa",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
]
SINGLE_RESULT = [
    "prod",
    "prod.dim_int",
    "softmax.int",
    "log_softmax.int",
    "cumprod",
    "cumsum",
    "linalg_vector_norm",
    "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord",
    "sum",
    "sum.dim_IntList",
]
WIDEST = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
    "cat",
    "stack",
]

# aten/src/ATen/cuda/CUDABlas.cpp and CublasHandlePool.cpp, parseChosenWorkspaceSize: ":4096:2:16:8", and 32 MiB on Hopper
CUBLAS_WORKSPACE = (4096 * 2 + 16 * 8) * 1024
CUBLAS_WORKSPACE_HOPPER = 32 << 20


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of device: what decides the kernels, and how much memory it has."""

    capability: tuple[int, int] = (8, 0)
    memory: int = 0
    attention: str = "auto"


class Cuda:
    """The policies, in force between ``install`` and the end of the process."""

    def __init__(self, tape: Tape, gpu: Gpu) -> None:
        self._tape, self.gpu = tape, gpu
        self._cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._libraries: list[Any] = []
        self._handles: set[bool] = set()
        self.guessed_attention = False

    def install(self) -> None:
        """Register everything."""
        self._autocast()
        self._kernels()
        self._foreach()
        self._tape.workspace = self.workspace

    # -- autocast: aten/src/ATen/autocast_mode.{h,cpp}
    def _autocast(self) -> None:
        library = torch.library.Library("aten", "IMPL")
        self._libraries.append(library)
        wanted: dict[str, Callable[..., Any]] = {}
        for names, make in (
            (LOWER, self._lower),
            (SINGLE, self._single),
            (SINGLE_RESULT, self._single_result),
            (WIDEST, self._widest),
        ):
            wanted |= {name: make(_overload(name)) for name in names if _overload(name) is not None}
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
            short = name.removeprefix("aten::")
            if name.startswith("aten::") and short not in wanted and _overload(short) is not None:
                library.impl(short, torch.library.fallthrough_kernel, "AutocastCPU", allow_override=True)
        for name, kernel in wanted.items():
            library.impl(name, kernel, "AutocastCPU", allow_override=True)
        put(torch, "clear_autocast_cache", self._clear_cache)
        begin = torch.amp.autocast_mode.autocast.__init__

        def init(this: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
            if device_type == "cuda":
                device_type, dtype = "cpu", dtype or torch.float16
            begin(this, device_type, dtype, enabled, cache_enabled)

        put(torch.amp.autocast_mode.autocast, "__init__", init)

    def _clear_cache(self) -> None:
        self._cache.clear()

    def _cast(self, item: Any, dtype: torch.dtype) -> Any:
        if not isinstance(item, torch.Tensor) or not item.is_floating_point() or item.dtype in (torch.float64, dtype):
            return item
        low = torch.get_autocast_dtype("cpu")
        keep = (
            dtype == low and item.dtype is torch.float32 and item.requires_grad and item.is_leaf and not item._is_view()
            and torch.is_autocast_cache_enabled()
        )  # fmt: skip
        if not keep:
            return item.to(dtype)
        known = self._cache.get(id(item))
        if known is None:
            known = self._cache[id(item)] = (item, item.to(dtype))
        return known[1]

    def _lower(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                low = torch.get_autocast_dtype("cpu")
                args, kwargs = tree_map(lambda item: self._cast(item, low), (args, kwargs))
                return op(*args, **kwargs)

        return kernel

    def _single(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                args, kwargs = tree_map(lambda item: self._cast(item, torch.float32), (args, kwargs))
                return op(*args, **kwargs)

        return kernel

    def _single_result(self, op: Any) -> Callable[..., Any]:
        name = op._schema.name

        def kernel(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                low = tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
                given = kwargs.get("dtype") if "dtype" in kwargs else args[1] if len(args) > 1 and _is_dtype(args[1]) else None
                if not low or given is not None:
                    return op(tensor, *args, **kwargs)
                if name in ("aten::softmax", "aten::log_softmax"):  # SoftMax.cu: half to float in one kernel
                    inner = aten._softmax if name == "aten::softmax" else aten._log_softmax
                    return inner(tensor, args[0] if args else kwargs["dim"], True)
                return op(tensor, *[item for item in args if item is not None or not args], dtype=torch.float32, **kwargs)

        return kernel

    def _widest(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                found: list[torch.dtype] = []
                tree_map(lambda item: found.append(item.dtype) if isinstance(item, torch.Tensor) else None, (args, kwargs))
                if torch.float32 in found and len(set(found)) > 1:
                    args, kwargs = tree_map(lambda item: self._cast(item, torch.float32), (args, kwargs))
                return op(*args, **kwargs)

        return kernel

    # -- dropout: aten/src/ATen/native/Dropout.cpp, is_fused_kernel_acceptable; attention: native/transformers/{attention.cpp,cuda/sdp_utils.cpp}
    def _kernels(self) -> None:
        library = torch.library.Library("aten", "IMPL")
        self._libraries.append(library)

        def dropout(tensor: Any, p: float, train: bool) -> Any:
            if not train or p == 0 or tensor.numel() == 0:
                return tensor
            if p == 1:
                return tensor * torch.zeros((), dtype=tensor.dtype)
            return torch.ops.aten.native_dropout(tensor, p, True)[0]

        library.impl("dropout", dropout, "AutogradCPU", allow_override=True)
        library.impl("scaled_dot_product_attention", self.attention, "AutogradCPU", allow_override=True)

    def attention(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        *, scale: Any = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        """``scaled_dot_product_attention`` as the device would choose."""
        which = self._choose(query, key, value, attn_mask, enable_gqa)
        if which == "flash":
            padded = [_pad(item, 8) for item in (query, key, value)]
            factor = scale if scale is not None else query.size(-1) ** -0.5
            result = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=factor)[0]
            return result if result.size(-1) == query.size(-1) else result[..., : query.size(-1)]
        if which == "efficient":
            grad = torch.is_grad_enabled() and any(item.requires_grad for item in (query, key, value))
            bias = self._bias(query, key, attn_mask)
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, grad, dropout_p, is_causal, scale=scale
            )[0]
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            attn_mask = _as_bias(attn_mask, query.dtype)
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]

    def _choose(self, query: Any, key: Any, value: Any, mask: Any, gqa: bool) -> str:
        if self.gpu.attention == "math" or (self.gpu.attention == "auto" and self.gpu.capability < (8, 0)):
            # the records of a T4 show it, against sdp_utils.cpp (can_use_mem_efficient_attention): see docs/budget.md
            self.guessed_attention = self.guessed_attention or self.gpu.attention == "auto"
            return "math"
        low = query.dtype in (torch.float16, torch.bfloat16)
        plain = query.dim() == key.dim() == value.dim() == 4 and query.size(2) > 0 and key.size(2) > 0
        wide = query.size(-1)
        same = plain and key.size(1) == query.size(1)
        backends = torch.backends.cuda
        if (
            plain
            and low
            and mask is None
            and self.gpu.attention != "efficient"
            and self.gpu.capability >= (8, 0)
            and wide <= 256
            and wide == value.size(-1)
        ):
            if backends.flash_sdp_enabled() and (same or gqa):
                return "flash"
        aligned = wide % (8 if low else 4) == 0 and value.size(-1) % (8 if low else 4) == 0
        kinds = (torch.float32, torch.float16, *((torch.bfloat16,) if self.gpu.capability >= (8, 0) else ()))
        if plain and same and aligned and query.dtype in kinds and backends.mem_efficient_sdp_enabled():
            if mask is None or not mask.requires_grad:
                return "efficient"
        return "math"

    def _bias(self, query: Any, key: Any, mask: Any) -> Any:
        """attention.cpp: convert_boolean_attn_mask, preprocess_mask, pad_bias<16>."""
        if mask is None:
            return None
        bias = _as_bias(mask, query.dtype) if mask.dtype is torch.bool else mask
        while bias.dim() < 4:
            bias = bias.unsqueeze(0)
        bias = _pad(bias, 16)[..., : bias.size(-1)] if bias.size(-1) % 16 else bias
        return bias.expand(query.size(0), query.size(1), query.size(2), key.size(2))

    # -- torch/optim/optimizer.py, _default_to_fused_or_foreach: foreach is the default on CUDA
    def _foreach(self) -> None:
        import torch.optim.optimizer as optimizers
        import torch.utils._foreach_utils as utilities

        for module in (optimizers, utilities):
            for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
                if hasattr(module, name):
                    put(module, name, lambda: ["cpu", "cuda"])
        kinds = optimizers._foreach_supported_types
        if FakeTensor not in kinds:
            kinds.append(FakeTensor)

    # -- scratch memory of kernels
    def workspace(self, func: Any, args: Any, result: Any) -> int:
        """Bytes that the operator's kernel asks the allocator for beside its results, and gives back."""
        name = func.overloadpacket
        if name in _PRODUCTS:
            # CublasHandlePool.cpp: one handle, with its workspace, for each thread; backward has a thread of its own
            thread = torch._C._current_autograd_node() is not None
            if thread not in self._handles:
                self._handles.add(thread)
                size = CUBLAS_WORKSPACE_HOPPER if self.gpu.capability[0] == 9 else CUBLAS_WORKSPACE
                self._tape.lasting(size, WORKSPACES, "cuBLAS")
        if name is aten._scaled_dot_product_efficient_attention_backward:
            # attention_backward.cu: gradients of the queries are added up in float32
            return int(args[1].numel()) * 4 if args[1].dtype is not torch.float32 else 0
        if name is aten._scaled_dot_product_flash_attention_backward:
            return int(args[1].numel()) * 4  # flash_api.cpp: dq_accum
        return 0


_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.addbmm, aten.addmv, aten.mv}


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet, None), overload or "default", None)


def _is_dtype(item: object) -> bool:
    return isinstance(item, torch.dtype)


@contextlib.contextmanager
def _below_autocast() -> Iterator[None]:
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        yield


def _as_bias(mask: Any, dtype: torch.dtype) -> Any:
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _pad(tensor: Any, multiple: int) -> Any:
    missing = -tensor.size(-1) % multiple
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor
