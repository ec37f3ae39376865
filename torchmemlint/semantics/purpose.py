"""What a function is for, as far as its name shows: a suspicion that evidence must bear out, never a verdict."""

from __future__ import annotations

import re
from functools import lru_cache

from torchmemlint.torch_facts import TORCH

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


NETWORKS = re.compile(
    r"(^|_)(model|net|network|module|encoder|decoder|actor|critic|policy|generator|discriminator|classifier|backbone|rnn|lstm|gru"
    r"|agent|vae|gan|unet|bert|gpt|transformer|teacher|student|extractor|embedder|embedding|regressor|head|layer|cnn|mlp|nn|reference|ref"
    r"|netg|netd|vocoder|detector|segmentor|ranker|llm|lm|dec|enc|target|act|cri|ranking|scorer)(s|_?\d+)?($|_)",
    re.IGNORECASE,
)
"""Names that people give to networks. A suspicion: it counts only beside what is done with the result."""
HELPERS = re.compile(
    r"(fn|fcn|fun|func|function|transform|transforms|tokeni[sz]er?|collate|preprocess\w*|processor|metric|loss|criterion|sim|fct|process|callback"
    r"|^f|sampler|parser|matcher|scheduler|env|dataset|loader|reader|op|ops|hook|handler|(input|data|feature|label|target|batch|image|text)_transformer|(de|un|inv|inv_)?normali[sz]er?)$|(^|_)(metric|loss|criterion)s?_\w+$|^_*(batch|set|is|has|get|load|save|make|to|wrap|unwrap|build|create|init|prepare|setup|compile)_",
    re.IGNORECASE,
)
"""Names of helpers that are no networks."""


def may_be_network(text: str) -> bool:
    """Whether the callee's text ("self.actor", "nets[0]") reads like a network's."""
    last = text.split("[")[0].rpartition(".")[2]
    return bool(NETWORKS.search(last)) and not HELPERS.search(last)


def is_helper(text: str) -> bool:
    return bool(HELPERS.search(text.split("[")[0].rpartition(".")[2]))


BATCHES = re.compile(r"loader|batches|dataset|_dl\b|\bdl\b|_iter\b|iterator", re.IGNORECASE)
"""Iterables of which nothing is known but the name: a data set's batches, and not layers, time steps or slices."""

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
