"""The meter against byte counts worked out by hand, and against the traps that make a meter lie."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from torchmemlint.confirm.worker.graphs import tensors_in, walk  # noqa: E402
from torchmemlint.confirm.worker.meter import AllocatorMeter, StorageMeter, meter_for  # noqa: E402

FLOAT = 4


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


PARAMETERS = (64 * 128 + 128 + 128 * 32 + 32) * FLOAT
ACTIVATIONS = 16 * 128 * FLOAT
OUTPUT = 16 * 32 * FLOAT


def test_parameters_inputs_and_activations_are_counted_to_the_byte() -> None:
    with StorageMeter() as meter:
        net = mlp()
        assert meter.live_bytes() == PARAMETERS
        x = torch.randn(16, 64)
        assert meter.live_bytes() == PARAMETERS + 16 * 64 * FLOAT
        out = net(x)
        # the linear's result is freed: ReLU saves its own result, which the next linear saves too
        assert meter.live_bytes() == PARAMETERS + 16 * 64 * FLOAT + ACTIVATIONS + OUTPUT
        loss = out.sum()
        loss.backward()
        del out, loss
        assert meter.live_bytes() == PARAMETERS * 2 + 16 * 64 * FLOAT  # gradients stay, the graph is gone


def test_no_grad_keeps_only_the_output() -> None:
    with StorageMeter() as meter:
        net, x = mlp(), torch.randn(16, 64)
        before = meter.live_bytes()
        with torch.no_grad():
            out = net(x)
        assert meter.live_bytes() == before + OUTPUT
        del out
        assert meter.live_bytes() == before


def test_the_peak_is_the_highest_live_figure_since_the_reset() -> None:
    with StorageMeter() as meter:
        meter.reset_peak()
        first = torch.zeros(1000)
        second = torch.zeros(500)
        del second
        assert meter.peak_bytes() == 1500 * FLOAT
        meter.reset_peak()
        assert meter.peak_bytes() == 1000 * FLOAT
        del first
        assert meter.live_bytes() == 0
        assert meter.peak_bytes() == 1000 * FLOAT


def test_a_view_keeps_its_whole_storage_and_a_clone_does_not() -> None:
    with StorageMeter() as meter:
        row = torch.zeros(100, 10)[0]
        assert meter.live_bytes() == 1000 * FLOAT
        row = row.clone()
        assert meter.live_bytes() == 10 * FLOAT


def test_a_storage_that_is_resized_in_place_counts_with_its_new_size() -> None:
    with StorageMeter() as meter:
        tensor = torch.zeros(10)
        tensor.resize_(30)
        assert meter.live_bytes() == 30 * FLOAT


def test_an_address_that_is_used_again_is_counted_again() -> None:
    with StorageMeter() as meter:
        for size in (10, 20, 30):
            tensor = torch.zeros(size)
            assert meter.live_bytes() == size * FLOAT
            del tensor
        assert meter.live_bytes() == 0


@pytest.mark.slow
def test_checkpointed_layers_free_what_they_computed() -> None:
    from torch.utils.checkpoint import checkpoint

    def after_forward(checkpointed: bool) -> int:
        with StorageMeter() as meter:
            net, x = mlp(), torch.randn(16, 64)
            before = meter.live_bytes()
            out = checkpoint(net, x, use_reentrant=False) if checkpointed else net(x)
            return int(meter.live_bytes() - before - out.nbytes)

    assert after_forward(False) == ACTIVATIONS
    assert after_forward(True) < ACTIVATIONS / 10


def test_polling_counts_as_the_callbacks_do() -> None:
    meter = StorageMeter()
    meter._poll = True  # as on torch 2.0 and 2.1, where a weak reference to a storage never calls back
    with meter:
        first = torch.zeros(100)
        second = first + 1
        assert meter.live_bytes() == 200 * FLOAT
        del first
        assert meter.live_bytes() == 100 * FLOAT
        del second
        assert meter.live_bytes() == 0


@pytest.mark.slow
def test_a_cycle_is_distinguished_from_a_leak() -> None:
    with StorageMeter() as meter:
        gc.collect()
        gc.disable()
        try:
            holder: list[object] = [torch.zeros(250)]
            holder.append(holder)
            del holder
            assert meter.live_bytes() == 1000
            gc.collect()
            assert meter.live_bytes() == 0
        finally:
            gc.enable()


@pytest.mark.parametrize("keep", ["loss", "graph"])
def test_a_walk_sees_nodes_bytes_and_what_a_backward_freed(keep: str) -> None:
    net, x = mlp(), torch.randn(16, 64)
    loss = net(x).sum()
    before = walk(loss)
    # sum, addmm, relu, addmm, and the transposes of the two weights
    assert before.nodes == 6
    assert before.freed_slots == 0
    # ReLU's result is what the second linear saves; the input is saved by the first; weights are leaves
    assert before.retained_bytes == ACTIVATIONS + 16 * 64 * FLOAT
    loss.backward(retain_graph=keep == "graph")
    after = walk(loss)
    assert after.nodes == before.nodes
    assert after.retained_bytes == (before.retained_bytes if keep == "graph" else 0)
    assert (after.freed_slots == after.slots) == (keep == "loss")


@pytest.mark.slow
def test_a_walk_creates_no_growth() -> None:
    with StorageMeter() as meter:
        net, x = mlp(), torch.randn(16, 64)
        loss = net(x).sum()
        gc.collect()
        before = meter.live_bytes()
        for _ in range(5):
            walk(loss)
        gc.collect()
        assert meter.live_bytes() == before
        del loss
        gc.collect()
        assert meter.live_bytes() == before - ACTIVATIONS - FLOAT


def test_a_walk_sees_what_a_function_keeps_on_its_context() -> None:
    class Keeps(torch.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.kept = x * 2
            return x.sum()

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            return grad * ctx.kept

    out = Keeps.apply(torch.zeros(50, requires_grad=True))
    assert walk(out).retained_bytes == 50 * FLOAT


def test_a_walk_stops_at_its_limit() -> None:
    value = torch.zeros(1, requires_grad=True)
    for _ in range(100):
        value = value + 1
    assert walk(value).nodes == 100
    assert walk(value, limit=10).nodes == 10


def test_containers_and_plain_objects_are_entered_and_modules_are_not() -> None:
    class Meter:
        def __init__(self) -> None:
            self.values = {"a": [torch.zeros(1)], "b": (torch.zeros(1),)}

    meter = Meter()
    shared = torch.zeros(1)
    assert sum(1 for _ in tensors_in([meter, shared, shared])) == 3
    assert not list(tensors_in({"net": nn.Linear(2, 2)}))


def test_an_exception_holds_what_the_frames_hold_that_it_left() -> None:
    def fail() -> None:
        inside = torch.zeros(3)
        raise ValueError(inside.numel())

    outside = torch.zeros(1)
    kept: list[BaseException] = []
    try:
        fail()
    except ValueError as error:
        kept.append(error)
    assert [tensor.numel() for tensor in tensors_in(kept)] == [3]  # not `outside`, which this frame holds by itself
    assert not list(tensors_in(kept[0].with_traceback(None)))
    assert outside.numel() == 1


@pytest.mark.slow
def test_retained_graphs_grow_and_the_control_is_flat() -> None:
    """The experiment in small: the same loop twice, once with the mistake."""

    def growth(mistake: bool) -> int:
        with StorageMeter() as meter:
            net, kept, live = mlp(), [], []
            for _ in range(6):
                loss = net(torch.randn(16, 64)).sum()
                kept.append(loss if mistake else loss.item())
                del loss
                gc.collect()
                live.append(meter.live_bytes())
            return int(live[-1] - live[-2])

    assert growth(mistake=False) == 0
    assert growth(mistake=True) == ACTIVATIONS + 16 * 64 * FLOAT + FLOAT


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here: the allocator's counters are read on one")
def test_the_allocator_counts_blocks_of_512_bytes() -> None:
    with AllocatorMeter(torch.device("cuda")) as meter:
        kept = torch.zeros(1, device="cuda")
        assert meter.live_bytes() == 512
        del kept
        assert meter.live_bytes() == 0
        assert meter.peak_bytes() == 512


def test_the_cpu_is_metered_by_storages() -> None:
    assert isinstance(meter_for("cpu"), StorageMeter)
