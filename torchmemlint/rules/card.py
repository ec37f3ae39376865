"""What is known of a rule without running it.

Needs nothing of the engine, so that a command line costs little.

Whatever treats some rules unlike others asks their cards, so that all that holds of a rule stands in its own file.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.findings import Safety, Severity
from torchmemlint.str_enum import StrEnum


class About(StrEnum):
    """What the findings of a rule are about.

    GRAPH_KEPT     an autograd graph outlives its step
    NEEDLESS_GRAPH a forward builds a graph for nothing; findings point at the forward
    TENSORS_KEPT   tensors live on where nothing releases them, with or without a graph
    RESULTS_KEPT   results pile up on the device, without a graph
    ALLOCATOR      the allocator of CUDA; a CPU has none
    HANDLER        what is done about an out-of-memory error
    FOOTPRINT      what lies in memory at the peak
    RUN            the run of the linter itself, or comments to it
    GROWTH         what grew when the program ran: reported by a run alone, never by a check
    """

    GRAPH_KEPT = "graph kept"
    NEEDLESS_GRAPH = "needless graph"
    TENSORS_KEPT = "tensors kept"
    RESULTS_KEPT = "results kept"
    ALLOCATOR = "allocator"
    HANDLER = "handler"
    FOOTPRINT = "footprint"
    RUN = "run"
    GROWTH = "growth"


class Correction(StrEnum):
    """How ``confirm`` fixes the flagged code, to see whether what grew then stays flat.

    DETACH         the flagged value is detached
    DETACH_STATE   so is the state that the flagged statement takes up again
    NO_GRAD        the flagged forward runs under ``no_grad``
    NO_GRAD_AROUND all of the function does where it trains nothing, else the forward
    HOST           the flagged value is moved to the host
    CLONE          the flagged value is copied out of the storage that it is a view of
    SWITCH         the flagged keyword is given False
    OWN_FIX        the finding's own fix; where it has none and nothing is trained, ``no_grad`` around all of the function
    LOAD           the flagged call loads to the host
    BACKWARD       a backward runs on the flagged value, and a leaf takes its place
    ROOM           what the flagged call joins is written into room that was made once
    NO_CHECKPOINT  what the flagged call checkpoints runs without; a reentrant one that trains nothing takes the other variant
    FREE           the gradients that the flagged call fills with zeros are freed
    NO_CACHE       the flagged function is called without its cache
    """

    DETACH = "detach"
    DETACH_STATE = "detach state"
    NO_GRAD = "no_grad"
    NO_GRAD_AROUND = "no_grad around"
    HOST = "host"
    CLONE = "clone"
    SWITCH = "switch"
    OWN_FIX = "own fix"
    LOAD = "load"
    BACKWARD = "backward"
    ROOM = "room"
    NO_CHECKPOINT = "no checkpoint"
    FREE = "free"
    NO_CACHE = "no cache"


class Shown(StrEnum):
    """What a rule says of a graph, and a run can show.

    NO_BACKWARD    no backward needs it: one that fails without it refutes the finding
    SECOND_STEP    a backward comes to it again: one that fails for that confirms the finding
    ONLY_CONSTANT  only a constant is wanted of it: a backward that comes later is of something else
    """

    NO_BACKWARD = "no backward"
    SECOND_STEP = "second step"
    ONLY_CONSTANT = "only a constant"


class Same(StrEnum):
    """What two findings have in common of which one explains the other.

    FUNCTION   the outermost function; what explains costs what it explains
    GRAPHS     all graphs of the one that is explained
    STATEMENT  the statement
    HANDLER    the handler of an out-of-memory error
    """

    FUNCTION = "function"
    GRAPHS = "graphs"
    STATEMENT = "statement"
    HANDLER = "handler"


class Once(StrEnum):
    """What one finding stands for: its place, all that one guard would cover (``Draft.part``), or a file, whose places its fix
    fixes together."""

    A_PLACE = "a place"
    A_PART = "a part"
    A_FILE = "a file"


class Advice(StrEnum):
    """What the doctor of out-of-memory errors advises; ``oom.remedies`` has the words."""

    NO_GRAPH = "no graph in inference"
    NO_GRAPH_KEPT = "no graph past its step"
    PRECISION = "mixed precision"
    SMALLER_BATCHES = "smaller batches"
    CHECKPOINTING = "checkpointing"
    SEGMENTS = "expandable segments"
    STEADY_SHAPES = "steady shapes"
    SHAPES = "shapes"
    FUSED_ATTENTION = "fused attention"
    LOADING = "loading"
    HANDLER = "handler"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's card.

    code        "TML" and three digits
    name        kebab-case, completes "allow …": the mistake, never the cure
    summary     one line, for tables
    severity    the worst that its findings have
    typical     that of a typical finding, the example of its page; None: the worst
    about       what its findings are about
    fix         the best fix that it offers
    default     on without being asked for
    preview     on only with ``--preview``, or selected by its full code
    triggers    words (identifiers in source, ASCII) one of which a file and a function must contain for the rule to fire;
                the screen and the choice of candidate regions work by them; empty for rules about the run
    root_words  those of them of which one is enough for a function to be run, though it mentions neither a backward nor
                evaluation nor of grad mode
    of_results  it follows what a model gives, so the words of all rules that are on by default lead to functions in which it
                has something to say
    always      it is asked where it is not selected, too: what it explains would else be reported as a mistake of its own
    yields_to   codes of rules whose finding explains one of this rule, which is not reported then
    explains    what its findings must have in common with those that yield to it, None where none do
    once        what one finding stands for
    correction  how ``confirm`` fixes it; None where it cannot run the flagged code alone
    keyword     of a call, the argument that the rule is about: ``Correction.SWITCH`` turns it off
    shown       what it says of a graph, and a run can show
    advice      advice for an out-of-memory error, which its findings are places to follow
    """

    code: str
    name: str
    summary: str
    severity: Severity
    about: About
    fix: Safety = Safety.NONE
    default: bool = True
    preview: bool = False
    triggers: frozenset[str] = frozenset()
    root_words: frozenset[str] = frozenset()
    of_results: bool = False
    always: bool = False
    yields_to: frozenset[str] = frozenset()
    explains: Same | None = None
    once: Once = Once.A_PLACE
    correction: Correction | None = None
    keyword: str = ""
    shown: frozenset[Shown] = frozenset()
    advice: frozenset[Advice] = frozenset()
    typical: Severity | None = None

    def severities(self) -> str:
        """The typical severity, and the worst where that is another."""
        worst = self.severity.value
        return worst if self.typical is None else f"{self.typical.value}, at worst {worst}"

    def when(self) -> str:
        """When the rule is on, in one or two words."""
        return "preview" if self.preview else "default" if self.default else "on request"

    def facts(self) -> str:
        """The line below the heading of its page."""
        return f"Severity: {self.severities()}. Fix: {self.fix.value}. Enabled: {self.when()}."
