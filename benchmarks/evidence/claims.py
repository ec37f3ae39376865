"""The claims that articles make about memory, measured. Prints one JSON object per line; started by the command as a
process of its own."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import median

import torch
from torch.utils.checkpoint import checkpoint_sequential

from benchmarks.evidence.models import SUBJECTS, Subject
from torchmemlint.confirm.worker.meter import StorageMeter, meter_for


def peak_of(device: str, prepare: Callable[[], Callable[[], object]], timed: bool = True) -> tuple[int, int, int, float]:
    """(bytes before, peak bytes above them, bytes above them after, seconds) of one call of what ``prepare`` returns,
    after a warm-up call; 0.0 seconds where it is not ``timed``."""
    gc.collect()
    with meter_for(device) as meter:
        action = prepare()
        action()
        gc.collect()
        base = meter.live_bytes()
        meter.reset_peak()
        kept = action()
        synchronize(device)
        peak = meter.peak_bytes() - base
        after = meter.live_bytes() - base
        del kept
    return base, peak, after, seconds_of(device, action) if timed else 0.0


def seconds_of(device: str, action: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a call, without the meter: of a CPU its own seconds, which other work on the machine changes least."""
    clock = time.process_time if device.startswith("cpu") else time.perf_counter
    times = []
    for _ in range(repeats):
        synchronize(device)
        begin = clock()
        action()
        synchronize(device)
        times.append(clock() - begin)
    return median(times)


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(torch.device(device))


Figures = dict[str, object]


def no_grad_saves(device: str) -> Iterator[Figures]:
    """What an evaluation needs with grad mode on (the result rebound from batch to batch), dropped at once, and under
    no_grad."""
    for subject in SUBJECTS:
        peaks = {}
        for name, mode, drop in (
            ("rebound", nullcontext, False),
            ("dropped", nullcontext, True),
            ("no_grad", torch.no_grad, True),
        ):
            peaks[name] = peak_of(device, partial(_evaluation, subject, mode, drop))
        base, with_grad = peaks["rebound"][:2]
        without = peaks["no_grad"][1]
        yield {
            "claim": "no_grad",
            "model": subject.name,
            "base_bytes": base,
            "peak_rebound": with_grad,
            "peak_dropped": peaks["dropped"][1],
            "peak_no_grad": without,
            "saved_of_activations": 1 - without / with_grad,
            "saved_of_all": (with_grad - without) / (base + with_grad),
            "seconds_ratio": peaks["no_grad"][3] / peaks["rebound"][3],
        }


def _evaluation(subject: Subject, mode: Callable[[], AbstractContextManager[object]], drop: bool) -> Callable[[], object]:
    model = subject.make().eval()
    batches = [subject.data()[0] for _ in range(4)]

    def run() -> None:
        with mode():
            for x in batches:
                out = model(x)
                if drop:
                    del out

    return run


def _training(subject: Subject, dtype: torch.dtype | None, device: str) -> Callable[[], object]:
    model = subject.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = subject.data()
    kind = device.split(":")[0]

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=dtype) if dtype else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def _forward(subject: Subject, dtype: torch.dtype | None, device: str) -> Callable[[], object]:
    model = subject.make()
    x, _ = subject.data()

    def step() -> object:
        with torch.autocast(device.split(":")[0], dtype=dtype) if dtype else nullcontext():
            return model(x)

    return step


def mixed_precision_halves(device: str) -> Iterator[Figures]:
    """Activations and peak of a training step in fp32 and under bf16 autocast."""
    for subject in SUBJECTS:
        forward = {dtype: peak_of(device, partial(_forward, subject, dtype, device))[2] for dtype in (None, torch.bfloat16)}
        full = peak_of(device, partial(_training, subject, None, device))
        half = peak_of(device, partial(_training, subject, torch.bfloat16, device))
        yield {
            "claim": "mixed precision",
            "model": subject.name,
            "activations_fp32": forward[None],
            "activations_bf16": forward[torch.bfloat16],
            "activations_ratio": forward[torch.bfloat16] / forward[None],
            "peak_fp32": full[1],
            "peak_bf16": half[1],
            "peak_ratio": (half[0] + half[1]) / (full[0] + full[1]),
            "seconds_ratio": half[3] / full[3],
        }


def checkpointing(device: str) -> Iterator[Figures]:
    """A stack of layers in 1 … 16 checkpointed segments: bytes after the forward, peak of forward and backward, time."""
    from torch import nn

    layers = 16

    def prepare(segments: int, forward_only: bool) -> Callable[[], object]:
        stack = nn.Sequential(*(nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(layers)))
        x = torch.randn(8, 64, 128, requires_grad=True)

        def run() -> object:
            out = stack(x) if segments == 0 else checkpoint_sequential(stack, segments, x, use_reentrant=False)
            if forward_only:
                return out
            out.sum().backward()
            stack.zero_grad()
            return None

        return run

    plain_after = peak_of(device, partial(prepare, 0, True))[2]
    plain = peak_of(device, partial(prepare, 0, False))
    for segments in (1, 2, 4, 8, 16):
        after = peak_of(device, partial(prepare, segments, True))[2]
        run = peak_of(device, partial(prepare, segments, False))
        yield {
            "claim": "checkpointing",
            "model": f"{layers} encoder layers",
            "segments": segments,
            "kept_ratio": after / plain_after,
            "peak_ratio": run[1] / plain[1],
            "seconds_ratio": run[3] / plain[3],
            "kept_bytes": after,
            "plain_bytes": plain_after,
        }


def micro_batches(device: str) -> Iterator[Figures]:
    """One batch; four micro-batches with a backward each; four summed before one backward."""
    for subject in SUBJECTS:

        def prepare(parts: int, summed: bool, subject: Subject = subject) -> Callable[[], object]:
            model = subject.make()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            x, y = subject.data(subject.batch * 4)

            def step() -> None:
                optimizer.zero_grad()
                losses = []
                for inputs, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
                    loss = torch.nn.functional.cross_entropy(model(inputs), labels) / parts
                    if summed:
                        losses.append(loss)
                    else:
                        loss.backward()
                    del loss
                if summed:
                    sum(losses[1:], losses[0]).backward()
                optimizer.step()

            return step

        whole = peak_of(device, partial(prepare, 1, False))
        each = peak_of(device, partial(prepare, 4, False))
        summed = peak_of(device, partial(prepare, 4, True))
        yield {
            "claim": "gradient accumulation",
            "model": subject.name,
            "peak_whole": whole[1],
            "peak_four": each[1],
            "peak_four_summed": summed[1],
            "four_to_whole": each[1] / whole[1],
            "summed_to_whole": summed[1] / whole[1],
        }


def micro_batches_by_number(device: str) -> Iterator[Figures]:
    """The peak of one step over 16 times the usual batch, in 1 … 16 micro-batches: a backward for each, and all of them summed."""
    for subject in SUBJECTS[:2]:

        def prepare(parts: int, summed: bool, subject: Subject = subject) -> Callable[[], object]:
            model = subject.make()
            x, y = subject.data(subject.batch * 16)

            def step() -> None:
                model.zero_grad()
                total: torch.Tensor | None = None
                for inputs, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
                    loss = torch.nn.functional.cross_entropy(model(inputs), labels) / parts
                    if summed:
                        total = loss if total is None else total + loss
                    else:
                        loss.backward()
                    del loss
                if total is not None:
                    total.backward()

            return step

        for parts in (1, 2, 4, 8, 16):
            yield {
                "claim": "micro-batches by number",
                "model": subject.name,
                "parts": parts,
                "peak_each": peak_of(device, partial(prepare, parts, False), timed=False)[1],
                "peak_summed": peak_of(device, partial(prepare, parts, True), timed=False)[1],
            }


def loaded_checkpoint(device: str) -> Iterator[Figures]:
    """A training step with SGD beside the dict that its weights were loaded from, and without it."""
    for subject in SUBJECTS:

        def prepare(held: bool, subject: Subject = subject) -> Callable[[], object]:
            model = subject.make()
            saved = {name: value.clone() for name, value in model.state_dict().items()}
            model.load_state_dict(saved)
            if not held:
                saved = {}
            x, y = subject.data()

            def step() -> int:
                model.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                return len(saved)

            return step

        without, beside = (peak_of(device, partial(prepare, held), timed=False) for held in (False, True))
        yield {
            "claim": "loaded checkpoint",
            "model": subject.name,
            "base_without": without[0],
            "base_with_dict": beside[0],
            "held_dict": beside[0] - without[0],
            "peak_of_a_step": without[1],
        }


def zeroed_gradients(device: str) -> Iterator[Figures]:
    """The peak of a training step that fills its gradients with zeros, and of one that frees them."""
    for subject in SUBJECTS:

        def prepare(freed: bool, subject: Subject = subject) -> Callable[[], object]:
            model = subject.make()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            x, y = subject.data()

            def step() -> None:
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=freed)

            return step

        zeros, none = (peak_of(device, partial(prepare, freed), timed=False) for freed in (False, True))
        yield {
            "claim": "zeroed gradients",
            "model": subject.name,
            "peak_zeros": zeros[0] + zeros[1],
            "peak_none": none[0] + none[1],
            "held_between": zeros[0] - none[0],
        }


def full_logits(device: str) -> Iterator[Figures]:
    """The next token's scores from all positions' logits, with and without an upcast, and from the last position alone; a
    head of 32,000 words over a width of 256 in bfloat16, without a graph."""
    from torch import nn

    def prepare(tokens: int, how: str) -> Callable[[], object]:
        head = nn.Linear(256, 32_000, bias=False).to(torch.bfloat16)
        hidden = torch.randn(2, tokens, 256, dtype=torch.bfloat16)

        def run() -> object:
            with torch.no_grad():
                if how == "last":
                    return head(hidden[:, -1]).float()
                logits = head(hidden)
                return (logits.float() if how == "upcast" else logits)[:, -1].float().clone()

        return run

    for tokens in (128, 512, 2048):
        peaks = {how: peak_of(device, partial(prepare, tokens, how), timed=False)[1] for how in ("upcast", "all", "last")}
        yield {
            "claim": "full logits",
            "model": "32,000 words, batch of 2",
            "tokens": tokens,
            "peak_all_upcast": peaks["upcast"],
            "peak_all": peaks["all"],
            "peak_last": peaks["last"],
        }


def attention(device: str) -> Iterator[Figures]:
    """Attention by hand against ``scaled_dot_product_attention``, forward and backward."""

    def prepare(tokens: int, by_hand: bool) -> Callable[[], object]:
        q, k, v = (torch.randn(1, 4, tokens, 32, requires_grad=True) for _ in range(3))

        def run() -> None:
            if by_hand:
                out = torch.softmax(q @ k.transpose(-2, -1) / 32**0.5, -1) @ v
            else:
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            out.sum().backward()
            q.grad = k.grad = v.grad = None

        return run

    for tokens in (256, 512, 1024, 2048):
        hand = peak_of(device, partial(prepare, tokens, True))
        fused = peak_of(device, partial(prepare, tokens, False))
        yield {
            "claim": "attention", "model": "4 heads of 32", "tokens": tokens, "peak_by_hand": hand[1], "peak_sdpa": fused[1],
            "ratio": hand[1] / fused[1],
        }  # fmt: skip


def empty_cache(device: str) -> Iterator[Figures]:
    """Bytes of live tensors, and of the cache, before and after ``empty_cache()``; only CUDA has such a cache."""
    if not device.startswith("cuda"):
        yield {"claim": "empty_cache", "model": "", "not_measured": "the CPU has no caching allocator"}
        return
    gpu = torch.device(device)
    kept = torch.empty(256 << 20, dtype=torch.uint8)
    freed = torch.empty(256 << 20, dtype=torch.uint8)
    del freed
    before = torch.cuda.memory_allocated(gpu), torch.cuda.memory_reserved(gpu)
    begin = time.perf_counter()
    torch.cuda.empty_cache()
    synchronize(device)
    spent = time.perf_counter() - begin
    after = torch.cuda.memory_allocated(gpu), torch.cuda.memory_reserved(gpu)
    del kept
    yield {
        "claim": "empty_cache",
        "model": "256 MiB kept, 256 MiB freed",
        "allocated_before": before[0],
        "allocated_after": after[0],
        "reserved_before": before[1],
        "reserved_after": after[1],
        "seconds": spent,
    }


def memory_fraction(device: str) -> Iterator[Figures]:
    """How far allocations get before the error, with the whole device and with smaller fractions of it; only on CUDA."""
    if not device.startswith("cuda"):
        yield {"claim": "memory fraction", "model": "", "not_measured": "only accelerators have a fraction"}
        return
    total = torch.cuda.get_device_properties(torch.device(device)).total_memory
    for fraction in (0.05, 0.1, 0.2):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(fraction, torch.device(device))
        kept: list[torch.Tensor] = []
        try:
            while len(kept) * (256 << 20) < total:
                kept.append(torch.empty(256 << 20, dtype=torch.uint8))
            reached = "no error"
        except torch.cuda.OutOfMemoryError as error:
            reached = str(error)[:80]
        held = sum(tensor.nbytes for tensor in kept)
        kept.clear()
        yield {
            "claim": "memory fraction",
            "model": "",
            "fraction": fraction,
            "held_at_error": held,
            "of_device": held / total,
            "error": reached,
        }
    torch.cuda.set_per_process_memory_fraction(1.0, torch.device(device))


CLAIMS = (
    no_grad_saves,
    mixed_precision_halves,
    checkpointing,
    micro_batches,
    micro_batches_by_number,
    loaded_checkpoint,
    zeroed_gradients,
    full_logits,
    attention,
    empty_cache,
    memory_fraction,
)


def main() -> None:
    """Measure every claim on the device and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--only", nargs="*", choices=[claim.__name__ for claim in CLAIMS], help="these claims alone")
    arguments = parser.parse_args()
    device = arguments.device
    if not device.startswith("cpu"):
        torch.set_default_device(device)
    else:
        torch.set_num_threads(1)
        assert isinstance(meter_for(device), StorageMeter)
    name = torch.cuda.get_device_name(torch.device(device)) if device.startswith("cuda") else "cpu"
    print(json.dumps({"device": name, "torch": torch.__version__}), flush=True)
    for claim in CLAIMS:
        if arguments.only and claim.__name__ not in arguments.only:
            continue
        torch.manual_seed(0)
        try:
            for figures in claim(device):
                print(json.dumps(figures), flush=True)
        except RuntimeError as error:
            print(
                json.dumps({"claim": claim.__name__, "model": "", "not_measured": f"{type(error).__name__}: {error}"[:300]}),
                flush=True,
            )


if __name__ == "__main__":
    main()
