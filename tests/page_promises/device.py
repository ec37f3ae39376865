"""TML401 to TML404."""

from page_promises import NET, NOTE, SILENT, Promise

COLLECT = (
    NET
    + """
@torch.no_grad()
def collect(loader):
    net = Net().cuda()
    net.eval()
    kept = []
    for x, y in loader:
        out = net(x.cuda())
        @1
    return @2

@3
"""
)
DATA = 'DataLoader(torch.load("data.pt", map_location="cpu"), batch_size=64)'
CALLED = f"print(len(collect({DATA})))"
JOINED = ("kept.append(out)", "torch.cat(kept)", CALLED)
VIEWS = (
    NET
    + """
@torch.no_grad()
def embed(net: Net, loader):
    kept = []
    for x in loader:
        out = net.body(x.cuda())
        kept.append(@1)
    return kept
"""
)
GROWS = (
    NET
    + """
@torch.no_grad()
def grow(net: Net, items, mapping):
    out = torch.empty(0)
    @1
    for item in @2:
        @3
        @4
    return out
"""
)
CAT = "out = torch.cat([out, net(item)])"
PLAIN = ("pass", "items", CAT, "pass")

EVALUATES = """
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, Trainer, TrainingArguments

class Own(Trainer):
    def @1(self, *given):
        return None

def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean()}

def build(train, valid, options):
    model = @2.from_pretrained("roberta-base")
    args = @3
    return Own(
        model=model,
        args=args,
        train_dataset=train,
        compute_metrics=accuracy,
        @4
    )
"""
MASKED = "AutoModelForMaskedLM"
PLAIN_ARGUMENTS = 'TrainingArguments("out", eval_strategy="epoch")'
KEEPS_LOGITS = ("log", MASKED, PLAIN_ARGUMENTS, "eval_dataset=valid,")
PROMISES = [
    Promise(
        "one number for each sample, by the network's last layer",
        "TML401",
        SILENT,
        COLLECT.replace("nn.Linear(512, 1000)", "nn.Linear(512, @4)").replace("mean((2, 3)))\n", "mean((2, 3)))@5\n"),
        (*JOINED, "1", ".squeeze(1)"),
        (*JOINED, "1000", ""),
        gap=True,
    ),
    Promise("scalars", "TML401", SILENT, COLLECT, ("kept.append(out.mean())", "torch.stack(kept)", CALLED), JOINED),
    Promise(
        "one number for each sample, by a reduction",
        "TML401",
        SILENT,
        COLLECT,
        ("kept.append(out.mean(1))", "torch.cat(kept)", CALLED),
        JOINED,
        gap=True,
    ),
    Promise("class indices", "TML401", SILENT, COLLECT, ("kept.append(out.argmax(1))", "torch.cat(kept)", CALLED), JOINED),
    Promise("moved to the CPU", "TML401", SILENT, COLLECT, ("kept.append(out.cpu())", "torch.cat(kept)", CALLED), JOINED),
    Promise(
        "moved to the CPU by an option",
        "TML401",
        SILENT,
        COLLECT.replace("collect(loader)", "collect(loader, host=False)"),
        ("kept.append(out.cpu() if host else out)", "torch.cat(kept)", CALLED),
        JOINED,
    ),
    Promise(
        "put on a device where they are stored",
        "TML401",
        SILENT,
        COLLECT,
        ("kept.append(out.cuda())", "torch.cat(kept)", CALLED),
        JOINED,
    ),
    Promise(
        "combined with other tensors that may be on the device",
        "TML401",
        NOTE,
        COLLECT,
        ("kept.append(out)", "torch.cat(kept) @ net.head.weight", CALLED),
        JOINED,
    ),
    Promise(
        "combined in a caller",
        "TML401",
        NOTE,
        COLLECT,
        ("kept.append(out)", "torch.cat(kept)", f"found = collect({DATA})\nprint(found @ torch.rand(1000, 1000).cuda())"),
        JOINED,
    ),
    Promise("a copy by clone()", "TML402", SILENT, VIEWS, ("out[:, 0].clone()",), ("out[:, 0]",)),
    Promise("indexing with a list", "TML402", SILENT, VIEWS, ("out[[0, 5]]",), ("out[:, 0]",)),
    Promise("indexing with a mask", "TML402", SILENT, VIEWS, ("out[out.sum((1, 2, 3)) > 0]",), ("out[:, 0]",)),
    Promise("stack", "TML402", SILENT, VIEWS, ("torch.stack([out[:, 0], out[:, 1]])",), ("out[:, 0]",)),
    Promise("a part of the batch", "TML402", SILENT, VIEWS, ("out[-1]",), ("out[:, 0]",)),
    Promise("a piece of chunk", "TML402", SILENT, VIEWS, ("out.chunk(4)[0]",), ("out.narrow(1, 0, 1)",)),
    Promise("cat", "TML402", SILENT, VIEWS, ("torch.cat([out[:, 0], out[:, 1]])",), ("out[:, 0]",)),
    Promise(
        "a loop that reads the tensor",
        "TML403",
        SILENT,
        GROWS,
        ("pass", "items", "out = torch.cat([out, net(out)])", "pass"),
        PLAIN,
    ),
    Promise(
        "a loop that resets the tensor",
        "TML403",
        SILENT,
        GROWS,
        ("pass", "items", CAT, "if len(out) > 99:\n    print(len(out))\n    out = torch.empty(0)"),
        PLAIN,
    ),
    Promise("a window of the tensor", "TML403", SILENT, GROWS, ("pass", "items", CAT, "out = out[-99:]"), PLAIN),
    Promise("a loop that removes parts", "TML403", SILENT, GROWS, ("pass", "items", CAT, "out = out[1:]"), PLAIN),
    Promise(
        "sixteen iterations",
        "TML403",
        SILENT,
        GROWS,
        ("pass", "range(16)", CAT.replace("item", "items[item]"), "pass"),
        ("pass", "range(17)", CAT.replace("item", "items[item]"), "pass"),
    ),
    Promise("a loop over a dict", "TML403", SILENT, GROWS, ("mapping = dict(mapping)", "mapping.values()", CAT, "pass"), PLAIN),
    Promise(
        "a loop in a forward over the parts of a module",
        "TML403",
        SILENT,
        """
import torch
from torch import nn

class Heads(nn.Module):
    def __init__(self, heads: nn.ModuleList):
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def @1(self, x, items):
        out = torch.empty(0)
        for head in @2:
            out = torch.cat([out, @3])
        return out
""",
        ("forward", "self.heads", "head(x)"),
        ("every", "items", "self.heads[0](head)"),
    ),
    Promise(
        "logits reduced batch by batch",
        "TML404",
        SILENT,
        EVALUATES,
        (*KEEPS_LOGITS[:3], "eval_dataset=valid, preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),"),
        KEEPS_LOGITS,
    ),
    *(
        Promise(
            f"arguments with {name}",
            "TML404",
            SILENT,
            EVALUATES,
            ("log", MASKED, f'TrainingArguments("out", {name}={value})', "eval_dataset=valid,"),
            ("log", MASKED, f'TrainingArguments("out", {name}=None)', "eval_dataset=valid,"),
        )
        for name, value in {
            "eval_accumulation_steps": 4,
            "prediction_loss_only": True,
            "batch_eval_metrics": True,
            "predict_with_generate": True,
        }.items()
    ),
    Promise("no data to evaluate on", "TML404", SILENT, EVALUATES, (*KEEPS_LOGITS[:3], ""), KEEPS_LOGITS),
    Promise(
        "arguments that are made elsewhere",
        "TML404",
        SILENT,
        EVALUATES,
        ("log", MASKED, "options", "eval_dataset=valid,"),
        KEEPS_LOGITS,
    ),
    Promise(
        "a model that scores a sample as a whole",
        "TML404",
        SILENT,
        EVALUATES,
        ("log", "AutoModelForSequenceClassification", *KEEPS_LOGITS[2:]),
        KEEPS_LOGITS,
    ),
    Promise("a model that is not visible", "TML404", SILENT, EVALUATES, ("log", "options", *KEEPS_LOGITS[2:]), KEEPS_LOGITS),
    *(
        Promise(f"a class with its own {name}", "TML404", SILENT, EVALUATES, (name, *KEEPS_LOGITS[1:]), KEEPS_LOGITS)
        for name in ("prediction_step", "evaluation_loop")
    ),
]
