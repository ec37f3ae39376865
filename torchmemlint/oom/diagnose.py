"""From the figures of a message to what ran out, shown by its numbers.

The order of the questions is fixed; the first that is answered with yes decides. T total, F free, R reserved = A allocated
+ X idle cache, Q request, L limit of this process:

 1. a limit is printed and R + Q reaches 98 % of it         → memory-cap
 2. figures contradict each other, or the kernel's log has half as much again as T → unclear
 3. Q > T; with an empty process on memory that the host and the device share, T itself is doubted → oversized-request, unclear
 4. workers of the same job hold more than a tenth of T, or several ranks restore a checkpoint to one device → own-ranks
 5. others hold more than half of T; or a quarter, if F covers Q and is below T/20 → other-processes
 6. F covers what the driver was asked for, and A < T/2 or F > T/20
      R + Q within 0.2 % of a multiple of 5 % of T           → memory-cap (not printed)
      else                                                   → unclear
 7. X ≥ Q and X > R/10; not if others hold more than T/4 and X - Q is below T/20 → fragmentation
 8. others hold more than a quarter of T                     → other-processes
 9. X > R/4                                                  → partly-fragmentation
10. F is not given, and R + Q is less than 90 % of T         → unclear
11. else                                                     → genuine

A cache that is nine tenths full has idle ends between its tensors, as every cache has: a program that got all of them would run out
a step later. So would one that gets the last idle piece of a device of which others hold a quarter.

Before it raises, the caching allocator has given every wholly unused segment back to the driver, so X is what lies between
live tensors, or what waits for work on another stream: that is active, and counted by the memory summary as such; it is no fragment.
Private pools (CUDA graphs) are printed inside A, and X is printed without them
(c10/cuda/CUDACachingAllocator.cpp), so live tensors are A less the pools. Messages without figures are in `meanings`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.oom.engines import ENGINES
from torchmemlint.oom.meanings import (
    Diagnosis,
    Kind,
    block_limit,
    circumstances,
    elements,
    fixed_meaning,
    survived,
    while_doing,
    without_figures,
)
from torchmemlint.oom.messages import Message
from torchmemlint.oom.scene import Activity, Scene
from torchmemlint.oom.signs import Sign
from torchmemlint.oom.sizes import GIB, MIB, TIB, format_size, percent
from torchmemlint.oom.wordings import Family

SHARED_WITH_HOST = ("HIP", "XPU")
"""Backends with many devices whose memory is the host's: their total is what the driver lends, often half or less of it."""


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds device memory beside this process.

    ranks    processes of one launch: (pid, bytes) with equal shares and neighbouring numbers
    named    the other processes that the message names
    unnamed  bytes of processes that it does not name: other containers, the desktop, CUDA contexts
    """

    ranks: tuple[tuple[int, int], ...]
    named: tuple[tuple[int, int], ...]
    unnamed: int

    @property
    def of_ranks(self) -> int:
        """Bytes that the ranks hold."""
        return sum(size for _, size in self.ranks)

    @property
    def of_others(self) -> int:
        """Bytes that all but the ranks hold."""
        return sum(size for _, size in self.named) + self.unnamed


def own_share(message: Message) -> int | None:
    """Bytes of the device that the driver counts as this process's; None if unknown.

    Less than the process's tensors cannot be: the driver does not know the process, as in some containers, and says 0.
    """
    own = message.this_process
    return None if own is None or own < (message.allocated or 0) else own


def holders(message: Message) -> Holders | None:
    """Who holds the rest of the device; None if the message does not give its total and its free memory.

    Without a line for this process, the ``Process N`` entry between R and R + 2 GiB is taken for it: inside a container the
    own pid is not the one that the driver reports. So is a larger entry if with it the device would hold more than it has: graphs and
    communicators of a serving engine take several GiB outside the cache.
    """
    if message.total is None or message.free is None:
        return None
    own, rest, reserved = own_share(message), list(message.processes), message.reserved
    if own is None and reserved is not None:
        mine = [entry for entry in rest if reserved <= entry[1] <= reserved + 2 * GIB]
        if not mine and sum(size for _, size in rest) + reserved > 1.01 * (message.total - message.free):
            mine = [entry for entry in rest if entry[1] >= reserved]  # more than the device has: its own is among them
        if mine:
            closest = min(mine, key=lambda entry: entry[1])
            rest.remove(closest)
            own = closest[1]
    ranks = _of_one_launch(tuple(rest))
    held = own if own is not None else reserved
    # Where the message does not say what this process holds, the rest may be its own cache.
    unnamed = max(0, message.total - message.free - sum(size for _, size in rest) - held) if held is not None else 0
    return Holders(ranks, tuple(entry for entry in rest if entry not in ranks), unnamed)


NEIGHBOURS = 40
"""Numbers that the system gives to other processes while a launcher starts one rank, at most: they start in one go."""


def _of_one_launch(processes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The largest group of processes that one launcher started.

    Either their shares are equal (a context each, or a copy each) and their numbers near, or four and more of them have numbers next
    to each other, whatever they hold. Two with equal shares must have numbers next to each other: two strangers on a device may well
    hold as much by chance.
    """
    best: tuple[tuple[int, int], ...] = ()
    for _, size in processes:
        group = sorted(entry for entry in processes if abs(entry[1] - size) <= max(size // 33, 16 * MIB))
        span = group[-1][0] - group[0][0]
        near = span <= NEIGHBOURS * len(group) if len(group) >= 3 else len(group) == 2 and span <= 4
        if near and len(group) > len(best):
            best = tuple(group)
    run: list[tuple[int, int]] = []
    for entry in sorted(processes):
        run = [*run, entry] if run and entry[0] - run[-1][0] <= 3 else [entry]
        if len(run) >= 4 and len(run) > len(best):
            best = tuple(run)
    return best


def _of_one_test_run(beside: Holders) -> Holders:
    """``beside`` with all processes that have near numbers as ranks: the workers of a test run hold what their tests need."""
    both = sorted((*beside.ranks, *beside.named))
    if len(both) < 2 or both[-1][0] - both[0][0] > NEIGHBOURS * len(both):
        return beside
    return Holders(tuple(both), (), beside.unnamed)


def others(message: Message) -> tuple[int, int] | None:
    """Device bytes that are not this process's: (named by pid, held by nobody the message names); None if unknown."""
    found = holders(message)
    return None if found is None else (found.of_ranks + sum(size for _, size in found.named), found.unnamed)


def diagnose(message: Message, scene: Scene | None = None) -> Diagnosis:
    """What a message says about the cause of the failure. Total: every message gets a kind, if only ``unclear``."""
    scene = scene or Scene()
    found = fixed_meaning(message, scene)
    if found is None:
        found = _mps(message, scene) if message.family is Family.MPS else _device(message, scene)
    return survived(found, message, scene)


def driver_request(requested: int) -> int:
    """What the caching allocator asks the driver for: 2 MiB, 20 MiB, or the request rounded up to 2 MiB."""
    if requested <= MIB:
        return 2 * MIB
    if requested < 10 * MIB:
        return 20 * MIB
    return -(-requested // (2 * MIB)) * 2 * MIB


def _device(m: Message, scene: Scene) -> Diagnosis:
    if m.requested is None:
        return without_figures(m, scene)
    beside = holders(m) or Holders((), (), 0)
    if Sign.TEST_WORKERS in scene.signs:
        beside = _of_one_test_run(beside)
    early = _limit(m, beside) or _doubt(m, scene) or _oversized(m, scene, beside) or _block(m, scene)
    if early is not None:
        return early
    reserved = m.reserved if m.reserved is not None else m.allocated
    if m.total is None or reserved is None or m.allocated is None:
        known = [f"asked for {format_size(m.requested)}"]
        if m.total is not None:
            known.append(f"the device has {format_size(m.total)}")
        if m.free is not None:
            known.append(f"{format_size(m.free)} were free")
        while_ = while_doing(scene)
        return Diagnosis(
            Kind.UNCLEAR,
            f"Device memory ran out{' ' + while_ if while_ else ''}; the message is cut off before the figures that show the cause.",
            (", ".join(known), *circumstances(scene, device=True)),
        )
    return (
        _unified(m, scene, m.total, reserved, beside)
        or _shared_device(m, scene, m.total, reserved, beside)
        or _room(m, m.total, reserved, m.allocated)
        or _held_back(m, scene, m.total, m.allocated)
        or _fragmented(m, m.total, reserved, m.allocated, beside)
        or (_other_processes(m, scene, m.total, reserved, beside) if beside.of_others > m.total / 4 else None)
        or _full(m, scene, m.total, reserved, m.allocated, beside)
    )


def _limit(m: Message, beside: Holders) -> Diagnosis | None:
    held = m.reserved if m.reserved is not None else m.allocated
    if m.allowed is None or held is None or m.requested is None or held + m.requested < 0.98 * m.allowed:
        return None
    part = f", {percent(m.allowed, m.total)} of the device" if m.total else ""
    return Diagnosis(
        Kind.MEMORY_CAP,
        f"A limit set for this process is used up: {format_size(m.allowed)}{part}.",
        (
            f"{format_size(held)} held + {format_size(m.requested)} requested reach the {format_size(m.allowed)} allowed",
            *((f"the device itself still had {format_size(m.free)} free",) if m.free else ()),
            *_besides(m, beside),
        ),
    )


def _doubt(m: Message, scene: Scene) -> Diagnosis | None:
    """Figures that cannot all be true, or a total that is not what the system's own log names."""
    if m.total and scene.evidence.pool > 1.5 * m.total:
        return Diagnosis(
            Kind.UNCLEAR,
            f"The runtime sees {format_size(m.total)}, but the kernel's log names {format_size(scene.evidence.pool)} for this device: driver or "
            "kernel keep the rest from it.",
            (
                "a GPU that shares the host's memory has one pool that is set aside and one that is lent; the runtime may count the wrong one",
                "a newer kernel or runtime may count both (AMD's APUs: Linux 6.16.9 and later); until then, no model that needs more fits",
            ),
            doubted=True,
        )
    sentences = []
    if m.total is not None and m.free is not None and m.free > m.total:
        sentences.append(f"{format_size(m.free)} free of {format_size(m.total)}")
    if m.total == 0:
        sentences.append("a device with no memory at all")
    if m.total is not None and m.total >= 1024 * TIB:
        sentences.append(f"a device with {format_size(m.total)}")
    if not sentences:
        return None
    return Diagnosis(
        Kind.UNCLEAR,
        "The driver's figures contradict each other; nothing can be concluded from them.",
        (*sentences, "compare with what the driver's own tool shows for the device"),
        doubted=True,
    )


def _oversized(m: Message, scene: Scene, beside: Holders) -> Diagnosis | None:
    if m.total is None or m.requested is None or m.requested <= m.total:
        return None
    if m.requested >= 256 * m.total:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"{format_size(m.requested)} were requested on a device with {format_size(m.total)}: a size that was computed wrongly.",
            (
                "a negative or overflown count, an index or a length read from garbage, NaN that became an integer",
                "no batch size and no setting of the allocator has to do with it",
                *_besides(m, beside),
            ),
        )
    empty = m.allocated is not None and m.allocated <= m.total / 100
    if empty and m.backend in SHARED_WITH_HOST and m.requested < 16 * m.total:
        return Diagnosis(
            Kind.UNCLEAR,
            f"{format_size(m.requested)} were requested of a device that the driver says has {format_size(m.total)}: doubt the total first.",
            (
                f"nothing was allocated before ({format_size(m.allocated or 0)}), so this is no shape that grew on the way",
                "a GPU that shares the host's memory has as much as the driver lends it: often half of the machine's, or the part "
                "set aside in the firmware",
                "if the total is right, the request is larger than the device: " + elements(m.requested, scene),
            ),
            doubted=True,
        )
    return Diagnosis(
        Kind.OVERSIZED_REQUEST,
        f"A single allocation of {format_size(m.requested)} was requested on a device with {format_size(m.total)}.",
        (
            elements(m.requested, scene),
            "no setting of the allocator and no smaller model makes room for it: look at the shapes",
            *_besides(m, beside),
        ),
    )


def _of_same_job(m: Message, scene: Scene, total: int, beside: Holders) -> Diagnosis | None:
    """What processes of the same job hold: a worker whose number is in the log, or ranks that read a checkpoint back to its device."""
    names = dict(scene.evidence.workers)
    mine = [(pid, size) for pid, size in beside.named if pid in names]
    held = sum(size for _, size in mine)
    if held > total / 10:
        workers = ", ".join(f"process {pid} ({names[pid]})" for pid, _ in mine[:8])
        return Diagnosis(
            Kind.OWN_RANKS,
            f"{format_size(held)} ({percent(held, total)}) of this device are held by {workers}, which the log shows to be of the same job.",
            (
                "it is no stranger that may be ended: the job's own parts share the device",
                *circumstances(scene, device=True),
                *_shares(m, total, m.reserved or m.allocated or 0, m.allocated or 0),
            ),
        )
    if scene.stage == "restored" and Sign.RANKS in scene.signs and not m.device and beside.unnamed > total / 10:
        return Diagnosis(
            Kind.OWN_RANKS,
            f"Several ranks read a checkpoint back to device {m.device or 0}, from which it was saved; {format_size(beside.unnamed)} of it are held "
            "outside this process.",
            (
                "the log shows a launch with several ranks, and the failing call restores a tensor to the device that is written in the file",
                f"this process holds {format_size(m.reserved or m.allocated or 0)} of {format_size(total)}",
                "the message does not name who holds the rest: a stranger's process is possible, too",
            ),
        )
    return None


def _shared_device(m: Message, scene: Scene, total: int, reserved: int, beside: Holders) -> Diagnosis | None:
    same_job = _of_same_job(m, scene, total, beside)
    if same_job is not None:
        return same_job
    taken_again = _had_room(m, total) and (m.free or 0) <= total / 20
    if beside.of_others > total / 2 or (taken_again and beside.of_others > total / 4):
        return _other_processes(m, scene, total, reserved, beside)
    if beside.of_ranks <= total / 10:
        return None
    share = own_share(m)
    own = share if share is not None else reserved
    sizes = [size for _, size in beside.ranks]
    each = sorted(sizes)[len(sizes) // 2]
    return Diagnosis(
        Kind.OWN_RANKS,
        f"{len(beside.ranks)} processes of one launch hold {format_size(beside.of_ranks)} of this device beside the process that failed.",
        (
            f"each of them holds {format_size(each)}{' or about that' if max(sizes) > min(sizes) else ''}, and their numbers are next to each other "
            f"({beside.ranks[0][0]} to {beside.ranks[-1][0]}): they were started together, as the ranks or workers of one program are",
            "they are the workers of one test run, and all of them use this device"
            if Sign.TEST_WORKERS in scene.signs
            else "so little is a context and what it loads: each touched the device before it chose its own"
            if each < 3 * GIB
            else "each has a copy of its own here, as a load without `map_location` or a device that is not set gives it",
            f"this process holds {format_size(own)} of {format_size(total)} ({percent(own, total)})",
            *_besides(m, Holders((), beside.named, beside.unnamed)),
        ),
    )


def _had_room(m: Message, total: int) -> bool:
    """Whether the driver had room for the request, and refused."""
    if m.free is None or m.requested is None or m.free < driver_request(m.requested):
        return False
    return m.allocated is None or m.allocated < total / 2 or m.free > total / 20


def _unified(m: Message, scene: Scene, total: int, reserved: int, beside: Holders) -> Diagnosis | None:
    """Memory that host and device share, most of which is not PyTorch's cache."""
    held = beside.of_ranks + beside.of_others
    if Sign.UNIFIED not in scene.signs or held <= total / 4:
        return None
    return Diagnosis(
        Kind.UNCLEAR,
        f"{format_size(held)} of the {format_size(total)} that GPU and host share are not in PyTorch's cache; whose they are, the message "
        "does not say.",
        (
            f"PyTorch's cache holds {format_size(reserved)}, {format_size(m.free or 0)} were free",
            "the rest is the host's side: other programs, the page cache, and what this program keeps on the host",
            "weights that are moved to the host stay in the same memory",
        ),
    )


def _block(m: Message, scene: Scene) -> Diagnosis | None:
    """An Intel GPU that refuses one large block although there is room: many give no more than 4 GiB in one piece.

    Source: github.com/intel/intel-extension-for-pytorch/issues/863.
    """
    held = m.reserved if m.reserved is not None else m.allocated
    if m.backend != "XPU" or m.total is None or held is None or m.requested is None or m.requested < 3.9 * GIB:
        return None
    room = m.free if m.free is not None else 0.95 * m.total - held
    return block_limit(m, scene) if m.requested <= room else None


def _room(m: Message, total: int, reserved: int, allocated: int) -> Diagnosis | None:
    if m.free is None or m.requested is None or not _had_room(m, total):
        return None
    asked = f"asked for {format_size(m.requested)}, {format_size(m.free)} were free"
    share = 100 * (reserved + m.requested) / total
    nearest = 5 * round(share / 5)
    if 10 <= nearest <= 95 and abs(share - nearest) <= 0.2:
        return Diagnosis(
            Kind.MEMORY_CAP,
            f"The driver had room; it looks as if something limits this process to {nearest} % of the device.",
            (asked, f"held and requested together are {share:.1f} % of {format_size(total)}: a round share"),
        )
    return Diagnosis(
        Kind.UNCLEAR,
        "The driver reported more free memory than was asked for, and still refused.",
        (
            f"{asked} of {format_size(total)}",
            f"this process held {format_size(reserved)}",
            "seen with virtual GPUs, MIG slices, WSL, a limit on pinned memory, and a neighbour that freed in between",
        ),
        refused=True,
    )


def _fragmented(m: Message, total: int, reserved: int, allocated: int, beside: Holders) -> Diagnosis | None:
    idle, requested = m.unallocated, m.requested
    if idle is None or requested is None or idle < requested or idle <= reserved / 10:
        return None
    if beside.of_others > total / 4 and idle - requested < total / 20:
        return None  # the last idle piece of a device that others fill
    return Diagnosis(
        Kind.FRAGMENTATION,
        f"The cache holds {format_size(idle)} that no tensor uses, yet no piece of it is {format_size(requested)} long.",
        (
            f"{format_size(allocated)} allocated of {format_size(reserved)} reserved: {percent(idle, reserved)} idle",
            f"asked for {format_size(requested)}, less than the idle memory",
            *_besides(m, beside),
        ),
    )


def _full(m: Message, scene: Scene, total: int, reserved: int, allocated: int, beside: Holders) -> Diagnosis:
    idle, requested = m.unallocated, m.requested or 0
    live = allocated - (m.private_pools or 0)
    shares = (*circumstances(scene, device=True), *_shares(m, total, reserved, allocated), *_besides(m, beside))
    if scene.activity is Activity.SAVING and requested >= total / 8:
        return Diagnosis(
            Kind.GENUINE,
            f"Saving the checkpoint asks for {format_size(requested)} in one piece: a whole copy of parameters that are spread otherwise.",
            shares,
        )
    # Much is idle, if little against the device, and much more than was asked for: sizes that vary have cut it up.
    in_pieces = idle is not None and requested and idle >= 8 * requested and idle >= total / 32
    if idle is not None and (idle > reserved / 4 or in_pieces):
        return Diagnosis(
            Kind.PARTLY_FRAGMENTATION,
            f"Too much is live ({percent(live, total)}); in addition, {format_size(idle)} of the cache are idle between tensors"
            + (f", in pieces smaller than the {format_size(requested)} asked for." if in_pieces else "."),
            shares,
        )
    if m.free is None and reserved + requested < 0.9 * total:
        headline = "According to its own figures, the device had room; the message does not say how much was free."
        return Diagnosis(
            Kind.UNCLEAR,
            headline,
            (*shares, "one block may be limited to less than the device has, 4 GiB on some"),
            refused=True,
        )
    if idle is None and live < 0.8 * total:
        cut_off = "The message is cut off before the figures that show the cause."
        pooled = "The message does not say what the allocator's pool holds idle."
        rest = total - (m.free or 0) - allocated
        if m.family is Family.ASYNC and m.free is not None and rest > total / 8:
            idle_or_held = f"{format_size(rest)} are neither free nor allocated: idle in the pool, cut up by sizes that vary, or held by others"
            shares = (*shares, idle_or_held)
        return Diagnosis(Kind.UNCLEAR, pooled if m.family is Family.ASYNC else cut_off, shares)
    while_ = while_doing(scene)
    beside_cache = _beside_cache(m, total, reserved, beside) if scene.activity is Activity.ENGINE else 0
    if beside_cache > total / 2:
        headline = (
            f"The engine holds {format_size(beside_cache)} of {format_size(total)} outside PyTorch, in its own runtime; the part that runs in PyTorch "
            f"has {format_size(live)} and found no room for {format_size(requested)} more."
        )
    elif live >= 0.8 * total:
        what = "live tensors"
        if scene.activity is Activity.ENGINE:
            what = (
                "weights, caches and buffers of the engine"
                if scene.engine in ENGINES and scene.stage != "weights"
                else "weights of the engine, which has no cache yet"
                if scene.stage == "weights"
                else "weights and activations of the engine"
            )
        headline = f"The device is full of {what}: {format_size(live)} of {format_size(total)} ({percent(live, total)})."
    else:
        headline = f"{format_size(live)} of live tensors and {format_size(requested)} more do not fit into {format_size(total)}"
        headline += " together with what else is there." if sum(others(m) or ()) else "."
    if in_large_pieces(m, scene):
        shares = (*shares, "the idle part would have been enough in one piece: fragmentation may have a part in it")
    if Sign.ALLOCATOR_BROKEN in scene.signs:
        shares = (
            *shares,
            "the internal assertion beside it comes of it: the allocator is broken until the process is restarted",
        )
    if Sign.COMPILED in scene.signs:
        pool = "the failing line is one that torch.compile has written: it asks for a buffer, or for a pool of several, with sizes that it has planned"
        shares = (pool, *shares)
    if requested >= total / 4:
        shares = (f"one allocation asks for {percent(requested, total)} of the device: {elements(requested, scene)}", *shares)
    return Diagnosis(Kind.GENUINE, headline, (*((f"it failed {while_}",) if while_ else ()), *shares))


def in_large_pieces(m: Message, scene: Scene) -> bool:
    """Whether an engine's idle cache would have been enough in one piece, for a request that is a part of the device that counts.

    Small pieces lie in every cache; and what lies idle is of no use to the capture of a graph, which has a pool of its own.
    """
    idle, requested, total = m.unallocated, m.requested, m.total
    if scene.activity is not Activity.ENGINE or scene.stage == "graphs" or idle is None or not requested or total is None:
        return False
    return idle >= requested >= total / 64


def _beside_cache(m: Message, total: int, reserved: int, beside: Holders) -> int:
    """Bytes that this process holds outside PyTorch's cache, as far as the message shows it."""
    own = own_share(m)
    if own is None and m.free is not None and m.processes:
        own = total - m.free - beside.of_ranks - beside.of_others
    return max(0, own - reserved) if own is not None else 0


def _shares(m: Message, total: int, reserved: int, allocated: int) -> list[str]:
    """Sentences about the parts of the device that are this process's, and about what is free."""
    live, idle, requested = allocated - (m.private_pools or 0), m.unallocated, m.requested or 0
    sentences = [f"live tensors {format_size(live)} of {format_size(total)} ({percent(live, total)})"]
    if allocated > 1.02 * total:
        sentences.append(
            "more is allocated than the device has: the driver has lent the host's memory, as it does under Windows and WSL"
        )
    if m.private_pools:
        sentences.append(f"{format_size(m.private_pools)} more in private pools (CUDA graphs)")
    if idle is not None:
        smaller = "less than" if idle < requested else "in pieces smaller than"
        sentences.append(f"{percent(allocated, reserved)} of what PyTorch reserved is allocated")
        sentences.append(f"idle in the cache {format_size(idle)}, {smaller} the {format_size(requested)} asked for")
    if m.free is not None:
        sentences.append(f"free on the device {format_size(m.free)}")
    return sentences


def waiting(m: Message, scene: Scene) -> int:
    """Bytes of blocks that are freed, but wait for work on another stream: what is active and not allocated. 0 if it is not much."""
    seen = scene.evidence
    active, live = (m.active, m.allocated) if m.active is not None else (seen.active, seen.allocated)
    held = active - live if active is not None and live is not None else 0
    return held if held > max(m.requested or 0, (m.total or 0) / 10) else 0


def _held_back(m: Message, scene: Scene, total: int, allocated: int) -> Diagnosis | None:
    held = waiting(m, scene)
    if not held:
        return None
    return Diagnosis(
        Kind.GENUINE,
        f"{format_size(held)} of the cache are freed, but wait for work on another stream: they are active, not idle, and no fragments.",
        (
            f"live tensors {format_size(allocated)} of {format_size(total)} ({percent(allocated, total)})",
            "a block that another stream has used comes back only when that stream has passed it; one late stream holds back all that follow",
            "no setting of the allocator joins such blocks",
        ),
    )


def _besides(m: Message, beside: Holders) -> tuple[str, ...]:
    """What others hold, for a diagnosis that has another cause; () where it is no more than contexts take."""
    held = beside.of_ranks + beside.of_others
    if m.total is None or held <= m.total / 20:
        return ()
    pids = [str(pid) for pid, _ in (*beside.ranks, *beside.named)]
    whose = f", by process {', '.join(pids[:8])}" if pids else ""
    if beside.ranks and not beside.named:
        whose += ": their shares and numbers are those of the ranks or workers of one launch"
    size = f"{format_size(held)} ({percent(held, m.total)})"
    if not pids and own_share(m) is None:
        return (f"neither free nor in PyTorch's cache {size}: other processes hold it, or this one beside its cache",)
    return (f"held outside this process {size}{whose}",)


def elsewhere(m: Message, scene: Scene) -> int | None:
    """The device that the log names as the one to use, if another one failed."""
    asked = dict(scene.options).get("device")
    return None if asked == m.device or m.device is None else asked


def ranks_on_first(m: Message, scene: Scene) -> bool:
    """Whether nobody is named for what is held of device 0, in a launch with several ranks."""
    return Sign.RANKS in scene.signs and not m.device and not m.processes and m.this_process is None


def _other_processes(m: Message, scene: Scene, total: int, reserved: int, beside: Holders) -> Diagnosis:
    share = own_share(m)
    own = share if share is not None else reserved
    named = sum(size for _, size in beside.named)
    because = [f"this process holds {format_size(own)} of {format_size(total)} ({percent(own, total)})"]
    if named:
        because.append(f"{format_size(named)} belong to process {', '.join(str(pid) for pid, _ in beside.named[:8])}")
    if beside.unnamed > total / 20:
        because.append(
            f"{format_size(beside.unnamed)} belong to processes that the message does not name: other containers, the desktop, CUDA contexts"
            + ("" if beside.named or m.processes else ", or a program that this one has started")
            + ("" if share is not None else "; or to this process itself, outside PyTorch's cache")
        )
    if elsewhere(m, scene) is not None:
        because.append(
            f"the log names device {elsewhere(m, scene)} as the one to use, and device {m.device} failed: a part of the program does not "
            "follow that setting"
        )
    if ranks_on_first(m, scene):
        because.append(
            "the log shows several ranks: each that does not choose its device takes device 0, so these may be its own"
        )
    last_pieces = m.unallocated is not None and m.requested is not None and 0 <= m.unallocated - m.requested < total / 20
    if last_pieces and not _had_room(m, total):
        because.append(
            f"idle in the cache {format_size(m.unallocated or 0)}: the last pieces of a full device, so fragmentation is not the cause"
        )
    held = beside.of_others
    # Where nobody is named, it may also be what this program holds outside PyTorch's cache; next to nothing in it speaks against that.
    shared = held <= total / 2 or (not beside.named and own > total / 20)
    if m.free is not None and m.requested is not None and m.free >= driver_request(m.requested):
        because.append(f"{format_size(m.free)} were free when the report was written: what others hold changes in between")
    elif held <= total / 2 and m.requested is not None:
        enough = held + (m.free or 0) >= driver_request(m.requested)
        because.append(
            "with all of it free, the program would have gone on; whether for long, the message does not say"
            if enough
            else f"even with all of it free, the {format_size(m.requested)} asked for would not fit"
        )
    doubtful = shared and share is None and not beside.named
    small = ", a small device" if total <= 8 * GIB and held <= total / 2 else ""
    return Diagnosis(
        Kind.OTHER_PROCESSES,
        f"{format_size(held)} ({percent(held, total)}) of this device's {format_size(total)}{small} are neither free nor in PyTorch's cache: others hold "
        "them, or this process beside its cache."
        if doubtful
        else f"Others hold {format_size(held)} ({percent(held, total)}) of this device's {format_size(total)}{small}.",
        tuple(because),
        shared=shared or elsewhere(m, scene) is not None,
    )


def _mps(m: Message, scene: Scene) -> Diagnosis:
    if m.requested is None or m.allowed is None or m.allocated is None:
        return Diagnosis(Kind.UNCLEAR, "Memory of the Apple GPU ran out; the message is cut off before its figures.", ())
    other = m.other_allocations or 0
    figures = (
        f"PyTorch {format_size(m.allocated)} + other allocations {format_size(other)} + {format_size(m.requested)} requested "
        f"exceed the {format_size(m.allowed)} allowed",
    )
    if m.requested > m.allowed:
        return Diagnosis(
            Kind.OVERSIZED_REQUEST,
            f"One allocation of {format_size(m.requested)} is more than the {format_size(m.allowed)} that the GPU may use.",
            (elements(m.requested, scene),),
        )
    if m.allocated + other + m.requested < 0.9 * m.allowed:
        return Diagnosis(
            Kind.UNCLEAR,
            "The figures do not add up to the limit: the allocator refused with room left.",
            (
                f"PyTorch {format_size(m.allocated)} + other allocations {format_size(other)} of {format_size(m.allowed)} allowed",
                "where even the first bytes are refused, no usable device is there: usual in a virtual machine, as hosted runners are",
            ),
            refused=True,
        )
    if other > m.allowed / 2:
        return Diagnosis(
            Kind.OUTSIDE_CACHE,
            f"{format_size(other)} of this process's GPU memory are no tensors of PyTorch; what they are, the message does not say.",
            (*figures, "usual: Metal's own buffers, as convolutions take them, its compiled graphs and their caches"),
        )
    return Diagnosis(
        Kind.GENUINE,
        f"The GPU's share is full of PyTorch's own memory: {format_size(m.allocated)} of {format_size(m.allowed)}.",
        figures,
    )
