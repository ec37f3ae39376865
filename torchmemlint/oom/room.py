"""What makes room: one table of remedies, by whose memory it is while what was running.

For a training whose device is full of live tensors the order is: a figure that grows, no graph kept past its step, smaller batches,
recomputation, a cheaper number format. Inference, engines, loading and compilation have lists of their own: nothing about gradients
where none are taken, and nothing about loaders or kept graphs where no training program speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchmemlint.oom import remedies as take
from torchmemlint.oom.messages import Message
from torchmemlint.oom.remedies import Remedy
from torchmemlint.oom.scene import Activity, Scene
from torchmemlint.oom.signs import Sign
from torchmemlint.oom.sizes import GIB, MIB
from torchmemlint.oom.wordings import Family

FROM_OUTSIDE = (Family.HOST_LIMIT, Family.WORKER_KILLED, Family.WORKER_GONE, Family.KERNEL_KILLED)
"""Messages of a process that was ended from outside: nothing in it was refused."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A message and its scene, as the conditions of the table ask for them."""

    message: Message
    scene: Scene

    def part(self, of: int) -> bool:
        """Whether one request is the ``of``-th part of the device at least."""
        m = self.message
        return m.total is not None and m.requested is not None and m.requested >= m.total / of

    def piece(self, size: int) -> bool:
        """Whether one request has ``size`` bytes at least."""
        return self.message.requested is not None and self.message.requested >= size and not self.outside

    @property
    def grows(self) -> bool:
        """Whether the log shows a figure about the device's memory rise."""
        return self.scene.growth is not None and not self.scene.growth.of_host

    @property
    def array(self) -> bool:
        """Whether the host refused an array, or what another library than PyTorch asked for."""
        return self.message.family is Family.HOST_ARRAY

    @property
    def outside(self) -> bool:
        """Whether the process was ended from outside."""
        return self.message.family in FROM_OUTSIDE


When = Callable[[Facts], bool]


def _sign(*signs: Sign) -> When:
    return lambda f: not f.scene.signs.isdisjoint(signs)


def _stage(*stages: str) -> When:
    return lambda f: f.scene.stage in stages


def _unless(when: When) -> When:
    return lambda f: not when(f)


def _always(f: Facts) -> bool:
    return True


def _with_graph(f: Facts) -> bool:
    return not f.scene.no_grad and Sign.SERVES not in f.scene.signs


def _graph_shows(f: Facts) -> bool:
    """Whether something speaks for a graph that stays: no frame rules it out, and a figure grows, passes went well, or a batch has one sample."""
    return _with_graph(f) and (f.grows or not f.scene.signs.isdisjoint({Sign.LATE, Sign.ONE_SAMPLE}))


def _plain_attention(f: Facts) -> bool:
    return f.part(4) and not f.scene.attention


def loads(f: Facts) -> bool:
    """Whether a program speaks that loads data: a training, or loader workers."""
    return f.scene.trains or Sign.LOADER in f.scene.signs or "worker" in f.message.text


def _resumed(f: Facts) -> bool:
    return (
        not f.scene.signs.isdisjoint({Sign.RESUMED, Sign.READ_TO_DEVICE})
        and f.scene.trains
        and Sign.RESUMED_DIFFERENTLY not in f.scene.signs
    )


def _pipeline(f: Facts) -> bool:
    return Sign.PIPELINE in f.scene.signs and not f.scene.trains


Row = tuple[tuple[Remedy, When], ...]

_FIRST: Row = (
    (take.RUN_EAGERLY, lambda f: Sign.COMPILED in f.scene.signs and f.part(8)),
    (take.RESET_METRICS, _stage("metrics")),
    (take.SETTINGS_OF_CHECKPOINT, _sign(Sign.RESUMED_DIFFERENTLY)),
    (take.RELEASE_CHECKPOINT, _resumed),
)
_WEIGHTS: Row = (
    (take.STAY_SPREAD, _stage("gathered")),
    (take.LOAD_ONTO_OWN_DEVICE, _stage("restored")),
    (take.OFFLOAD, _pipeline),
    (take.SHARD_WEIGHTS, _sign(Sign.RANKS)),
    (take.WEIGHTS_IN_FEWER_BITS, _always),
    (take.SHARD_WEIGHTS, _unless(_pipeline)),
    (take.LOAD_ONCE, _always),
    (take.OFFLOAD, _always),
)
_DATA: Row = ((take.DATA_ON_HOST, _always), (take.OFFLOAD, _always), (take.SHAPES, _always))
_TENSOR: Row = ((take.SHAPES, _always), (take.SMALLER_TENSOR, _always), (take.EARLIER_CELLS, _sign(Sign.NOTEBOOK)))

_ON_DEVICE: Mapping[Activity, Row] = {
    Activity.TRAINING: (
        (take.MARGIN, _sign(Sign.SEARCHED)),
        (take.ONE_PROCESS_PER_DEVICE, _stage("replicas")),
        (take.NO_GRAPH_PAST_ITS_STEP, lambda f: f.grows),
        (take.OPTIMIZER_STATE, lambda f: f.scene.stage == "optimizer" or (f.scene.stage == "scoring" and not f.part(8))),
        (take.NOTHING_BETWEEN_TRIES, _sign(Sign.TRIALS)),
        (take.SHAPES, lambda f: f.part(4)),
        (take.SHARD_WEIGHTS, _stage("optimizer")),
        (take.SMALLER_STEPS, _stage("scoring")),
        (take.SMALLER_BATCHES, _unless(_stage("scoring"))),
        (take.NO_GRAPH_PAST_ITS_STEP, _sign(Sign.LATE)),
        (take.CROP_SAMPLES, lambda f: f.scene.raised and f.scene.stage != "optimizer"),
        (take.CHECKPOINTING, _always),
        (take.MIXED_PRECISION, _always),
        (take.FUSED_ATTENTION, _plain_attention),
        (take.SHAPES, lambda f: f.part(10)),
        (take.NO_GRAPH_PAST_ITS_STEP, _always),
        (take.NO_GRAPH_IN_INFERENCE, _always),
        (take.OPTIMIZER_STATE, _always),
        (take.HANDLER, _sign(Sign.RETRIED)),
    ),
    Activity.INFERENCE: (
        (take.SMALLER_TILES, _stage("decoder")),
        (take.SMALLER_EVALUATION, _stage("evaluation")),
        (take.RESULTS_TO_HOST, lambda f: f.grows),
        (take.BALANCED_MAP, _sign(Sign.DISPATCHED)),
        (take.ATTENTION_KERNEL, lambda f: f.part(4) and f.scene.attention),
        (take.NO_GRAPH_IN_INFERENCE, _graph_shows),
        (take.INFER_LESS, _always),
        (take.NO_GRAPH_IN_INFERENCE, lambda f: not f.scene.no_grad),
        (take.SHAPES, lambda f: f.part(4)),
        (take.FUSED_ATTENTION, _plain_attention),
        (take.RESULTS_TO_HOST, _unless(_pipeline)),
        (take.WEIGHTS_IN_FEWER_BITS, _always),
        (take.OFFLOAD, _always),
    ),
    Activity.UNKNOWN: (
        (take.NO_GRAPH_PAST_ITS_STEP, lambda f: f.grows),
        (take.SHAPES, lambda f: f.part(4)),
        (take.SMALLER_STEPS, _always),
        (take.NO_GRAPH_IN_INFERENCE, _always),
        (take.SIXTEEN_BITS, _always),
        (take.RESULTS_AS_NUMBERS, _always),
        (take.RECOMPUTE_IF_TRAINING, _always),
        (take.FUSED_ATTENTION, _plain_attention),
        (take.SHAPES, lambda f: f.part(10)),
    ),
    Activity.LOADING: _WEIGHTS,
    Activity.SAVING: ((take.SHARDED_STATE, _always), (take.COPIES_ON_HOST, _always), (take.OFFLOAD, _always)),
    Activity.COMPILATION: (
        (take.COMPILE_PLAINLY, _always),
        (take.COMPILE_ALONE, _unless(_stage("extension"))),
        (take.MIXED_PRECISION, lambda f: f.scene.trains),
        (take.SMALLER_BATCHES, lambda f: f.scene.trains),
    ),
}
_ON_HOST: Mapping[Activity, Row] = {
    Activity.TRAINING: (
        (take.FEWER_ACTORS, lambda f: f.message.writer == "Ray"),
        (take.SHAPES, lambda f: f.piece(4 * GIB)),
        (take.FEWER_WORKERS, _always),
        (take.WATCH_LOADER, lambda f: f.outside and Sign.LOADER in f.scene.signs),
        (take.SMALLER_BATCHES, lambda f: not f.outside),
        (take.CHECKPOINTING, lambda f: not f.outside),
        (take.NO_GRAPH_PAST_ITS_STEP, _always),
        (take.LOAD_LAZILY, _always),
        (take.NO_GRAPH_IN_INFERENCE, lambda f: not f.outside),
    ),
    Activity.INFERENCE: (
        (take.RESET_METRICS, _stage("metrics")),
        (take.FEWER_WORKERS, lambda f: f.outside),
        (take.WATCH_LOADER, lambda f: f.outside and Sign.LOADER in f.scene.signs),
        (take.NO_GRAPH_IN_INFERENCE, lambda f: not f.outside and _with_graph(f)),
        (take.NO_GRAPH_PAST_ITS_STEP, lambda f: not f.outside and _with_graph(f)),
        (take.INFER_LESS, lambda f: not f.outside and f.piece(64 * MIB)),
        (take.SHAPES, lambda f: not f.outside and f.piece(4 * GIB)),
        (take.UNLOAD, lambda f: f.outside or (f.scene.no_grad and f.scene.stage != "evaluation")),
        (take.INFER_LESS, lambda f: f.outside or _with_graph(f)),
        (take.LOAD_LAZILY, _unless(_stage("evaluation"))),
        (take.FEWER_WORKERS, _with_graph),
        (take.WEIGHTS_IN_FEWER_BITS, lambda f: f.outside),
    ),
    Activity.ENGINE: (
        (take.SHORTER_SEQUENCES_ON_HOST, lambda f: f.piece(8 * GIB)),
        (take.LESS_OF_ENGINE_ON_HOST, _always),
        (take.LOAD_LAZILY, _stage("weights")),
        (take.FREE_ON_HOST, lambda f: not f.outside),
    ),
    Activity.LOADING: (
        (take.LOAD_LAZILY, _always),
        (take.WEIGHTS_IN_FEWER_BITS, _always),
        (take.LOAD_ONCE, _always),
        (take.FEWER_WORKERS, lambda f: not f.outside),
    ),
    Activity.SAVING: ((take.SHARDED_STATE, _always), (take.FEWER_WORKERS, _always)),
    Activity.COMPILATION: ((take.FEWER_COMPILERS, _always), (take.LOAD_LAZILY, lambda f: f.outside)),
    Activity.UNKNOWN: (
        (take.FEWER_ACTORS, lambda f: f.message.writer == "Ray"),
        (take.ARRAYS_IN_PARTS, lambda f: f.array),
        (take.FEWER_WORKERS, _always),
        (take.WATCH_LOADER, lambda f: f.outside and Sign.LOADER in f.scene.signs),
        (take.SMALLER_STEPS, lambda f: not f.outside and not f.array),
        (take.NO_GRAPH_PAST_ITS_STEP, lambda f: loads(f) if f.outside else not f.array),
        (take.LOAD_LAZILY, _always),
        (take.FIND_WHAT_GROWS, lambda f: f.outside and not loads(f)),
        (take.NO_GRAPH_IN_INFERENCE, lambda f: not f.outside and not f.array),
    ),
}
_OF_ONE_ARRAY: Row = (
    (take.SHAPES, lambda f: f.piece(16 * GIB)),
    (take.ARRAYS_IN_PARTS, _always),
    (take.SHAPES, _always),
    (take.FEWER_WORKERS, _always),
)
_OF_STATE: Row = (
    (take.LESS_STATE_ON_HOST, _always),
    (take.LOAD_LAZILY, _always),
    (take.FEWER_WORKERS, _unless(_sign(Sign.STATE_BUILT))),
)
_OF_SERVER: Row = ((take.FEWER_SERVER_WORKERS, _always), (take.LOAD_LAZILY, _always), (take.LESS_ON_HOST, _always))
_OF_LIBRARY: Row = ((take.LESS_ON_HOST, _always),)


def _chosen(row: Row, facts: Facts) -> tuple[Remedy, ...]:
    return tuple(dict.fromkeys(remedy for remedy, when in row if when(facts)))


def room_on_device(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """What makes room on a device for all that runs there but a serving engine, whose settings have a list of their own."""
    facts = Facts(message, scene)
    row = _ON_DEVICE[Activity.LOADING if message.family is Family.DISPATCHED else scene.activity]
    if scene.stage == "tensor" and (message.total is None or facts.part(10)):
        row = _TENSOR
    elif scene.activity is Activity.LOADING and scene.stage == "data":
        row = _DATA
    return _chosen((*_FIRST, *row), facts)


def room_on_host(message: Message, scene: Scene) -> tuple[Remedy, ...]:
    """What makes room on the host."""
    facts = Facts(message, scene)
    row = _ON_HOST[scene.activity]
    if scene.activity is Activity.SAVING:
        pass
    elif scene.signs & {Sign.STATE_BUILT, Sign.STATE_ON_HOST}:
        row = _OF_STATE
    elif facts.array and "for an array" in message.text:
        row = _OF_ONE_ARRAY
    elif Sign.SERVER_WORKERS in scene.signs:
        row = _OF_SERVER
    elif scene.library and facts.outside and not scene.trains:
        row = _OF_LIBRARY
    return _chosen(row, facts)
