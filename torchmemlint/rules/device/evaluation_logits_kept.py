"""A `Trainer` keeps the logits of a whole evaluation on the device, because only `compute_metrics` reduces them.

## What it does
Reports a `Trainer` of transformers (also `Seq2SeqTrainer`, trl's `SFTTrainer`, and a class of the project below one of these)
that is given `compute_metrics` and a model that scores each word of the vocabulary at each position (`…ForMaskedLM`,
`…ForCausalLM`, `…ForConditionalGeneration`) or each class at each pixel (`…ForSemanticSegmentation`).

It does not report a trainer

- with `preprocess_logits_for_metrics`, which reduces the logits batch by batch;
- whose arguments set `eval_accumulation_steps`, `prediction_loss_only`, `batch_eval_metrics` or `predict_with_generate`;
- without data to evaluate on, or whose arguments are made elsewhere (a command line, another file);
- whose model scores a sample as a whole (`…ForSequenceClassification`), or is of a class that is not visible;
- of a class that evaluates by itself (`prediction_step`, `evaluation_loop`).

## What it costs
`compute_metrics` is called once, with the logits of all samples. Until then they stay on the device: positions × vocabulary × 4
bytes a sample in float32. At 512 positions and 32,000 words that is 66 MB a sample, 33 GB for 500 samples; the class ids that most
metrics need are 4 KB a sample. The trainer joins what it has with each new batch, so that the peak is about twice that.
`eval_accumulation_steps` moves the logits to the host now and then, where they need as much memory.

## Example
```python
from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments


def compute_metrics(prediction):
    logits, labels = prediction
    mask = labels != -100
    return {"accuracy": (logits.argmax(-1) == labels)[mask].mean()}


def build(train, valid):
    model = AutoModelForMaskedLM.from_pretrained("camembert-base")
    args = TrainingArguments("out", eval_strategy="epoch")
    return Trainer(model=model, args=args, train_dataset=train, eval_dataset=valid, compute_metrics=compute_metrics)
```

Use instead:

```python
from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments


def best(logits, labels):
    return logits.argmax(-1)


def compute_metrics(prediction):
    words, labels = prediction
    mask = labels != -100
    return {"accuracy": (words == labels)[mask].mean()}


def build(train, valid):
    model = AutoModelForMaskedLM.from_pretrained("camembert-base")
    args = TrainingArguments("out", eval_strategy="epoch")
    return Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=valid,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=best,
    )
```

## Fix
None: what the metric needs of the logits must be chosen, and `compute_metrics` changed with it.

## When to ignore
The evaluation is a few samples, or positions and vocabulary are small.

## References
- transformers, "Trainer features", memory-efficient evaluation: https://huggingface.co/docs/transformers/trainer_recipes
- CUDA out of memory when using Trainer with compute_metrics:
  https://discuss.huggingface.co/t/cuda-out-of-memory-when-using-trainer-with-compute-metrics/2941
- the sizes are computed, not measured
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmemlint.findings import Severity
from torchmemlint.index.facts import FunctionFacts
from torchmemlint.index.project import ClassRef, FunctionRef
from torchmemlint.rules.api import Draft, Flow, Rule
from torchmemlint.rules.card import About
from torchmemlint.semantics.roots import Runs
from torchmemlint.semantics.state import TrainerMade
from torchmemlint.torch_facts import TORCH

RULE = Rule(
    code="TML404",
    name="evaluation-logits-kept",
    summary="A `Trainer` keeps the logits of a whole evaluation, because only `compute_metrics` reduces them",
    severity=Severity.WARNING,
    about=About.RESULTS_KEPT,
    triggers=TORCH.words["metrics-of-a-trainer"],
)
EVENT = TrainerMade

METRICS = TORCH.names["trainers-metrics"]
DATA = TORCH.names["trainers-data"]
KEEPS = TORCH.words["keeps-predictions"]
SPARES = TORCH.words["spares-predictions"]
ARGUMENTS = TORCH.words["takes-training-arguments"]
EVALUATES = TORCH.words["evaluates-as-a-trainer"]
DENSE = tuple(sorted(TORCH.words["scores-every-word"]))
OFF = ("None", "False")


def is_root(facts: FunctionFacts, ref: FunctionRef, runs: Runs) -> bool:
    """A function that gives a call metrics."""
    return any(METRICS in call.keywords for call in facts.calls)


def check(event: TrainerMade, flow: Flow) -> Iterator[Draft]:
    if not flow.own(event.site) or METRICS not in event.given or event.more or SPARES & event.given:
        return
    if not keeps_predictions(event, flow) or not scores_every_word(event, flow) or is_spared(flow):
        return
    if DATA not in event.given and not flow.file_says(EVALUATES):
        return
    yield Draft(
        flow.at(
            RULE,
            event.site,
            "the logits of the whole evaluation are kept on the device until `compute_metrics` reduces them",
            label="no `preprocess_logits_for_metrics`",
            cost="each sample's scores for each position: 66 MB at 512 positions and 32,000 words, for all samples of the evaluation",
            help="reduce each batch: `preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)`, and let"
            " `compute_metrics` take class ids",
        ),
        handler=event.site.handler,
    )


def bases_of(event: TrainerMade, flow: Flow) -> set[str]:
    project = flow.runs.world.project
    above = project.mro(event.made) if isinstance(event.made, ClassRef) else [event.made]
    return {name for name in above if isinstance(name, str)}


def keeps_predictions(event: TrainerMade, flow: Flow) -> bool:
    """Whether the trainer evaluates as those of transformers do."""
    if isinstance(event.made, ClassRef):
        project, cls = flow.runs.world.project, event.made
        if any(project.method(cls, name) for name in EVALUATES) or project.saying(cls.path, cls.qualname, *sorted(SPARES)):
            return False
    return bool(bases_of(event, flow) & KEEPS)


def scores_every_word(event: TrainerMade, flow: Flow) -> bool:
    """Whether the model's logits are as large as its inputs times a vocabulary: by its class, or by the trainer's."""
    parts = {part for name in event.models for part in name.split(".")}
    return any(part.endswith(DENSE) for part in parts) or bool(bases_of(event, flow) & TORCH.words["trains-language-models"])


def is_spared(flow: Flow) -> bool:
    """Whether the arguments of the file's trainers say how predictions are spared, or may say so where nothing shows it."""
    project, path = flow.runs.world.project, flow.record.root.path
    calls = [
        call
        for facts in project.module(path).functions
        for call in facts.calls
        if project.resolve(path, call.callee, facts.qualname) in ARGUMENTS
    ]
    given = [arg for call in calls for arg in call.args]
    return not calls or any(arg.keyword == "**" or (arg.keyword in SPARES and arg.const not in OFF) for arg in given)
