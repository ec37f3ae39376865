"""What is known of a rule without running it. Needs nothing of the engine, so that a command line costs little."""

from __future__ import annotations

from dataclasses import dataclass

from torchmemlint.findings import Safety, Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's card.

    code        "TML" and three digits
    name        kebab-case, completes "allow …": the mistake, never the cure
    summary     one line, for tables
    severity    the worst that its findings have
    fix         the best fix that it offers
    default     on without being asked for
    preview     on only with ``--preview``, or selected by its full code
    triggers    words (identifiers in source, ASCII) one of which a file and a function must contain for the rule to fire;
                the screen and the choice of candidate regions work by them; empty for rules about the run
    roots       those of them of which one is enough for a function to be run, though it speaks neither of a backward nor of
                evaluation nor of grad mode
    once_a_file one finding speaks for all of a file, and its fix repairs them all
    experiment  name of the kind of growth that ``confirm`` measures, None where the cost is not memory
    """

    code: str
    name: str
    summary: str
    severity: Severity
    fix: Safety = Safety.NONE
    default: bool = True
    preview: bool = False
    triggers: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    once_a_file: bool = False
    experiment: str | None = None
