"""What a function is for, as far as its name shows: a suspicion that evidence must bear out, never a verdict."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from torchmemlint.torch_facts import TORCH

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EVALUATES = TORCH.words["says-evaluation"]
"""Words of functions that evaluate a model."""
USES = TORCH.words["says-use"]
"""Words of functions that use a model's result."""
DEEDS = TORCH.words["says-deed"]
"""Nouns that say the same at the end of a name ("single_image_detection", not "DetectionLoss")."""
PREPARES = TORCH.words["says-preparation"]
"""Words of functions that stand before or after such a deed."""
TRAINS = TORCH.words["says-training"]
"""Words of functions that train, or need gradients for another purpose, or are run in either mode."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@lru_cache(maxsize=1000)
def words(qualname: str) -> tuple[str, ...]:
    """The words of the last name of a dotted path, in order: "Trainer.valid_stepOnce" → valid, step, once."""
    last = qualname.rpartition(".")[2]
    return tuple(w.lower() for w in _WORD.findall(last))


def _first(qualname: str, wanted: frozenset[str]) -> int:
    """Position of the first word that is wanted; beyond all words when there is none."""
    found = words(qualname)
    return next((i for i, word in enumerate(found) if word in wanted), len(found))


def evaluates(qualname: str) -> bool:
    """Whether the name says evaluation before it says anything of training: "evaluate_loss", not "train_and_evaluate"."""
    return _first(qualname, EVALUATES) < len(words(qualname)) and _first(qualname, EVALUATES) < _first(qualname, _DRIVES)


_USED = USES | EVALUATES


def uses(qualname: str) -> bool:
    """Whether the name says that a model's result is used, or evaluated, before it says anything of training."""
    found = words(qualname)
    first = _first(qualname, _USED)
    if first == len(found) and found and found[-1] in DEEDS and not PREPARES.intersection(found):
        first -= 1
    return first < len(found) and first < _first(qualname, _DRIVES)


PHASES = EVALUATES | TORCH.words["says-phase"]


def says_phase(test: str) -> bool:
    """Whether a test says by a word that it separates training from evaluation ("mode == 'train'"), and not, say, who calls backward."""
    return not PHASES.isdisjoint(word.lower() for word in _WORD.findall(test))


HELPERS = re.compile(
    r"(fn|fcn|fun|func|function|transform|transforms|tokeni[sz]er?|collate|preprocess\w*|processor|metric|loss|criterion|sim|fct|process|callback"
    r"|^f|sampler|parser|matcher|scheduler|env|dataset|loader|reader|op|ops|hook|handler|(input|data|feature|label|target|batch|image|text)_transformer|(de|un|inv|inv_)?normali[sz]er?)$|(^|_)(metric|loss|criterion)s?_\w+$|^_*(batch|set|is|has|get|load|save|make|to|wrap|unwrap|build|create|init|prepare|setup|compile)_",
    re.IGNORECASE,
)
"""Names of helpers that are no networks."""


class Named(NamedTuple):
    """Of the functions that call something by a name, how many call a network and how many a loss (``benchmarks/field/names.py``)."""

    n: int
    networks: int
    losses: int

    @property
    def network(self) -> float:
        """The share of networks: what the name alone says."""
        return self.networks / self.n

    @property
    def attached(self) -> float:
        """The share of what gives a tensor on the graph of what it is given."""
        return (self.networks + self.losses) / self.n


@cache
def _callees() -> Mapping[str, Named]:
    rows = tomllib.loads((Path(__file__).parent / "callees.toml").read_text(encoding="utf-8"))["words"].split()
    return {word: Named(*map(int, counts.split("/"))) for word, _, counts in (row.partition("=") for row in rows)}


def words_of(text: str) -> tuple[str, ...]:
    """Under what a callee is counted, the most telling first: its whole name, and the last word of it, single letters and numbers after
    that left out ("self.netG_A": net; "loss_fn": loss_fn, fn); nothing where it is the name of a class ("Net")."""
    last = text.split("[")[0].rpartition(".")[2]
    found = words(last) if not CLASS.fullmatch(last) else ()
    while len(found) > 1 and (len(found[-1]) == 1 or found[-1].isdigit()):
        found = found[:-1]
    return tuple(dict.fromkeys(("_".join(found), found[-1]))) if found else ()


def named(text: str) -> Named:
    """What the name of a callee says: as a whole, else by that word of it which says most ("actor_target"); nothing where none was counted
    often enough."""
    known, counted = _callees(), words_of(text)
    whole = [word for word in counted[:1] if word in known]
    candidates = whole or (words(text) if counted else ())
    return max((known[word] for word in candidates if word in known), key=lambda row: row.attached, default=UNCOUNTED)


UNCOUNTED = Named(1, 0, 0)
CLASS = re.compile(r"[A-Z]+[a-z]\w*")


def may_be_network(text: str) -> bool:
    """Whether the callee's text ("self.actor", "nets[0]") reads like a network's: three of four that are called so are some."""
    return named(text).network >= MOST and not is_helper(text)


MOST = 0.75
"""The share from which on what is called so is taken for what most of them are."""


def is_helper(text: str) -> bool:
    return bool(HELPERS.search(text.split("[")[0].rpartition(".")[2]))


BATCHES = re.compile(r"loader|batches|dataset|_dl\b|\bdl\b|_iter\b|iterator", re.IGNORECASE)
"""Iterables of which nothing is known but the name: a data set's batches, and not layers, time steps or slices."""
STRIDE = re.compile(r"\brange\((?:[^(),]|\([^()]*\))+,(?:[^(),]|\([^()]*\))+,(?!\s*-?1\))(?:[^(),]|\([^()]*\))+\)")
"""A ``range`` with a step of its own: from batch to batch."""

RUNS_MODEL = re.compile(
    r"^_*(forward\w*|encode\w*|decode\w*|encoder|decoder|embed\w*|extract\w*|get_\w*(feature|embed|logit|hidden|prob|represent)\w*"
    r"|predict\w*|infer\w*|sample\w*|act|classify|logits?|score\w*|\w*(encoder|decoder|extractor|head|backbone|model|net|transformer|layer)s?)$"
)
"""Methods of a module that is not visible that are taken to run it."""


def trains(qualname: str) -> bool:
    """Whether the name suggests training, or of something that needs gradients, and not of evaluation before."""
    return _first(qualname, TRAINS) < len(words(qualname)) and not evaluates(qualname)


def drives(qualname: str) -> bool:
    """As ``trains``, of the words alone that are never those of a function that runs in either mode."""
    return _first(qualname, _DRIVES) < len(words(qualname)) and not evaluates(qualname)


_DRIVES = TRAINS - TORCH.words["says-either"]
