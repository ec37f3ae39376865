"""What a function is for, as far as its name tells: a suspicion that evidence must bear out, never a verdict."""

from __future__ import annotations

import re

EVALUATES = frozenset(
    {
        "eval", "evaluate", "evaluates", "evaluation", "evaluator", "val", "valid", "validate", "validation", "test", "testing", "predict",
        "prediction", "predictions", "predictor", "infer", "inference", "detect", "classify", "transcribe", "translate", "demo",
    }
)  # fmt: skip
"""Words of functions that evaluate a model."""
USES = frozenset(
    {
        "generate", "sample", "decode", "encode", "embed", "embedding", "embeddings", "extract", "score", "scores", "act", "action",
        "actions", "select", "choose", "rollout", "explore", "decision", "reconstruct", "interpolate", "render", "visualize", "plot",
        "synthesize", "synthesise", "tts", "search", "retrieve", "rank", "query", "outlier", "anomaly", "proba", "logits", "compute",
        "get", "collect", "gather", "play", "greedy", "segment", "caption", "answer", "chat", "summarize", "policy", "features",
        "featurize", "convert", "export", "benchmark",
    }
)  # fmt: skip
"""Words of functions that use a model's result."""
TRAINS = frozenset(
    {
        "train", "training", "fit", "update", "learn", "optimize", "optimise", "finetune", "pretrain", "loss", "losses", "backward",
        "forward", "gradient", "gradients", "grad", "closure", "criterion", "objective", "attack", "perturb", "saliency", "attribute",
        "attributions", "cam", "penalty", "jacobian", "hessian", "reg", "regularize", "step", "distill", "trace", "script", "summary",
    }
)  # fmt: skip
"""Words of functions that train, or need gradients for another purpose, or are run in either mode."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def words(qualname: str) -> frozenset[str]:
    """The words of the last name of a dotted path: "Trainer.valid_stepOnce" → valid, step, once."""
    last = qualname.rpartition(".")[2]
    return frozenset(w.lower() for w in _WORD.findall(last))


def evaluates(qualname: str) -> bool:
    found = words(qualname)
    return bool(found & EVALUATES) and not found & (TRAINS - {"step", "script"})


def uses(qualname: str) -> bool:
    found = words(qualname)
    return bool(found & (USES | EVALUATES)) and not found & (TRAINS - {"step", "script"})


def trains(qualname: str) -> bool:
    return bool(words(qualname) & TRAINS)
