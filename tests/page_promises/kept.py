"""TML101 to TML104, and TML204."""

from page_promises import ERROR, NET, NOTE, SILENT, START, WARNING, Promise

TOTAL = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    total = 0
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        @1
        @2
    @3
"""
    + START
)

STEP = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()"

RETAINED = STEP.replace("backward()", "backward(retain_graph=True)")

STORED = TOTAL.replace("total = 0\n", "kept = []\n").replace("@3", "print(len(kept))")

METER = (
    NET
    + """
class Meter:
    def __init__(self):
        self.sum = 0.0

    def update(self, value):
        @1

def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    meter = Meter()
    for x, y in loader:
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        @2
        meter.update(@3)
    print(meter.sum)
"""
    + START
)

RECURRENT = (
    NET
    + """
def train(loader):
    cell, head = nn.GRUCell(512, 512).cuda(), nn.Linear(512, 10).cuda()
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.1)
    for chunks, targets in loader:
        state = torch.zeros(64, 512, device="cuda")
        total = 0
        for x, y in zip(chunks.cuda(), targets.cuda()):
            state = cell(x, state)
            loss = F.cross_entropy(head(state), y)
            @1
        @2
"""
    + START
)

MOVED = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    outputs = []
    for x, y in loader:
        out = net(x.cuda())
        @1
        outputs.append(@2)
    return outputs
"""
    + START
)

KEPT = (
    NET
    + """
class Meter:
    def __init__(self):
        self.sum = 0.0

    def update(self, value):
        self.sum += value

def run(loader):
    net = Net().cuda()
    @2
    meter, kept = Meter(), []
    for x, y in loader:
        out = net(x.cuda())
        loss = F.cross_entropy(out, y.cuda())
        @1
        @3
    print(meter.sum, len(kept))
"""
    + START.replace("train", "run")
)

TRAINED = ("optimizer = torch.optim.SGD(net.parameters(), 0.1)", STEP)

EVALUATED = ("net.eval()", "pass")


ACCUMULATES = (
    NET
    + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    @1
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        loss.backward()
        @2
        if step % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()
            @3
            @4
"""
    + START
)
LISTED = ("kept, told = [], []", "kept.append(loss)", "print(torch.stack(kept).mean())")
PROMISES = [
    Promise(
        "a sum that is back-propagated itself",
        "TML101",
        SILENT,
        TOTAL,
        ("total += loss", "pass", "total.backward(); optimizer.step()"),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "terms that the step back-propagates together",
        "TML101",
        SILENT,
        TOTAL,
        (
            "part = 0\nfor scale in (1, 2):\n    part += scale * loss",
            "optimizer.zero_grad()\npart.backward()\noptimizer.step()",
            "pass",
        ),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "numbers",
        "TML101",
        SILENT,
        TOTAL,
        ("total += loss.item()", STEP, "print(total)"),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "indices",
        "TML101",
        SILENT,
        TOTAL,
        ("total += net(x.cuda()).argmax(1).sum()", STEP, "print(total)"),
        ("total += net(x.cuda()).amax(1).sum()", STEP, "print(total)"),
    ),
    Promise(
        "detached values",
        "TML101",
        SILENT,
        TOTAL,
        ("total += loss.detach()", STEP, "print(total)"),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "a loop over the heads of one network",
        "TML101",
        SILENT,
        NET
        + """
def train(loader):
    net, heads = Net().cuda(), nn.ModuleList([nn.Linear(1000, 10) for _ in range(40)]).cuda()
    total = 0
    x, y = next(iter(loader))
    out = net(x.cuda())
    for @1:
        total += F.cross_entropy(@2, y.cuda())
    print(total)
"""
        + START,
        ("head in heads", "head(out)"),
        ("x, y in loader", "net(x.cuda())"),
    ),
    Promise(
        "grad mode off here",
        "TML101",
        SILENT,
        TOTAL,
        ("with torch.no_grad():\n    total += F.cross_entropy(net(x.cuda()), y.cuda())", "pass", "print(total)"),
        ("if True:\n    total += F.cross_entropy(net(x.cuda()), y.cuda())", "pass", "print(total)"),
    ),
    Promise(
        "grad mode off in all callers",
        "TML101",
        SILENT,
        NET
        + """
def evaluate(net, loader):
    total = 0
    for x, y in loader:
        total += F.cross_entropy(net(x.cuda()), y.cuda())
    print(total)

def train(loader):
    net = Net().cuda()
    with @1:
        evaluate(net, loader)
"""
        + START,
        ("torch.no_grad()",),
        ("open('log')",),
    ),
    Promise(
        "a total that existed before, unless the backward is visible",
        "TML101",
        SILENT,
        NET
        + """
def add(net: Net, x, y, totals):
    loss = F.cross_entropy(net(x.cuda()), y.cuda())
    @1
    totals["loss"] += loss
    return loss
""",
        ("pass",),
        ("loss.backward()",),
    ),
    Promise(
        "a total that is reset with each update",
        "TML101",
        NOTE,
        ACCUMULATES,
        ("total = 0", "total += loss", "print(total)", "total = 0"),
        ("total = 0", "total += loss", "print(total)", "pass"),
    ),
    Promise(
        "a list that is new with each update",
        "TML102",
        NOTE,
        ACCUMULATES,
        (*LISTED, "kept = []"),
        (*LISTED, "pass"),
    ),
    Promise(
        "a list that another has by the time of each update",
        "TML102",
        NOTE,
        ACCUMULATES,
        (*LISTED, "kept = []"),
        (*LISTED, "told.append(kept); kept = []"),
    ),
    Promise(
        "at most 16 iterations",
        "TML101",
        NOTE,
        NET
        + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    total = 0
    data = iter(loader)
    for _ in range(@1):
        x, y = next(data)
        loss = F.cross_entropy(net(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    print(total)
"""
        + START,
        ("16",),
        ("17",),
    ),
    Promise(
        "back-propagated",
        "TML101",
        WARNING,
        TOTAL,
        ("total += loss", STEP, "print(total)"),
        ("total += loss", "pass", "print(total)"),
    ),
    Promise(
        "not back-propagated",
        "TML101",
        ERROR,
        TOTAL,
        ("total += loss", "pass", "print(total)"),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "back-propagated with retain_graph",
        "TML101",
        ERROR,
        TOTAL,
        ("total += loss", RETAINED, "print(total)"),
        ("total += loss", STEP, "print(total)"),
    ),
    Promise(
        "a key that is overwritten at each step",
        "TML102",
        SILENT,
        STORED.replace("kept = []", "kept = {}"),
        ("kept['last'] = loss", STEP),
        ("kept[len(kept)] = loss", STEP),
    ),
    Promise(
        "a name that is overwritten at each step", "TML102", SILENT, STORED, ("kept = loss", STEP), ("kept.append(loss)", STEP)
    ),
    Promise(
        "values that a later backward uses",
        "TML102",
        SILENT,
        STORED,
        ("kept.append(loss)", "if len(kept) == 64:\n    sum(kept).backward()\n    optimizer.step()\n    kept = []"),
        ("kept.append(loss)", STEP),
    ),
    Promise("numbers", "TML102", SILENT, STORED, ("kept.append(loss.item())", STEP), ("kept.append(loss)", STEP)),
    Promise(
        "indices",
        "TML102",
        SILENT,
        STORED,
        ("kept.append(net(x.cuda()).argmax(1))", STEP),
        ("kept.append(net(x.cuda()))", STEP),
    ),
    Promise("detached values", "TML102", SILENT, STORED, ("kept.append(loss.detach())", STEP), ("kept.append(loss)", STEP)),
    Promise(
        "grad mode off",
        "TML102",
        SILENT,
        STORED,
        ("with torch.no_grad():\n    kept.append(F.cross_entropy(net(x.cuda()), y.cuda()))", STEP),
        ("if True:\n    kept.append(F.cross_entropy(net(x.cuda()), y.cuda()))", STEP),
    ),
    Promise(
        "a container that existed before, unless the backward is visible",
        "TML102",
        SILENT,
        NET
        + """
def add(net: Net, x, y, losses):
    loss = F.cross_entropy(net(x.cuda()), y.cuda())
    @1
    losses.append(loss)
    return loss
""",
        ("pass",),
        ("loss.backward()",),
    ),
    Promise(
        "back-propagated with retain_graph",
        "TML102",
        ERROR,
        STORED,
        ("kept.append(loss)", RETAINED),
        ("kept.append(loss)", STEP),
    ),
    Promise(
        "at most 16 iterations",
        "TML102",
        NOTE,
        STORED.replace("x, y in loader", "_ in range(@3)").replace("loss = F", "x, y = next(loader)\n        loss = F"),
        ("kept.append(loss)", STEP, "16"),
        ("kept.append(loss)", STEP, "17"),
    ),
    Promise(
        "at most 3 iterations with whole graphs",
        "TML102",
        NOTE,
        STORED.replace("x, y in loader", "_ in range(@3)").replace("loss = F", "x, y = next(loader)\n        loss = F"),
        ("kept.append(loss)", RETAINED, "3"),
        ("kept.append(loss)", RETAINED, "4"),
    ),
    Promise(
        "a container that lives for one batch",
        "TML102",
        NOTE,
        NET
        + """
def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    @1
    for views, y in DataLoader(loader.dataset, batch_size=64):
        @2
        for x in views:
            loss = F.cross_entropy(net(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept.append(loss)
    print(len(kept))
"""
        + START,
        ("pass", "kept = []"),
        ("kept = []", "pass"),
    ),
    Promise(
        "functions that make a number",
        "TML103",
        SILENT,
        METER,
        ("self.sum += value.item()", STEP, "loss"),
        ("self.sum += value", STEP, "loss"),
    ),
    Promise(
        "functions that detach the value",
        "TML103",
        SILENT,
        METER,
        ("self.sum += value.detach()", STEP, "loss"),
        ("self.sum += value", STEP, "loss"),
    ),
    Promise(
        "functions outside the project",
        "TML103",
        SILENT,
        METER.replace("meter = Meter()", "meter = @4()").replace("import torch\n", "import torch, ourlib\n", 1),
        ("self.sum += value", STEP, "loss", "ourlib.Meter"),
        ("self.sum += value", STEP, "loss", "Meter"),
    ),
    Promise(
        "one backward after the inner loop",
        "TML104",
        SILENT,
        RECURRENT,
        ("total = total + loss", "optimizer.zero_grad()\ntotal.backward()\noptimizer.step()"),
        (STEP, "pass"),
    ),
    Promise(
        "retain_graph, and summed for a later backward",
        "TML104",
        SILENT,
        RECURRENT,
        ("loss.backward(retain_graph=True); total = total + loss", "total.backward()\noptimizer.step()\noptimizer.zero_grad()"),
        ("loss.backward(retain_graph=True)", "optimizer.step()\noptimizer.zero_grad()"),
    ),
    Promise(
        "detached",
        "TML204",
        SILENT,
        MOVED,
        ("loss = F.cross_entropy(out, y.cuda())\n" + STEP, "out.detach().cpu()"),
        ("loss = F.cross_entropy(out, y.cuda())\n" + STEP, "out.cpu()"),
    ),
    Promise(
        "back-propagated", "TML102|TML201", WARNING, KEPT, ("kept.append(loss)", *TRAINED), ("kept.append(loss)", *EVALUATED)
    ),
    Promise(
        "not back-propagated", "TML102|TML201", ERROR, KEPT, ("kept.append(loss)", *EVALUATED), ("kept.append(loss)", *TRAINED)
    ),
    Promise(
        "back-propagated", "TML103|TML201", WARNING, KEPT, ("meter.update(loss)", *TRAINED), ("meter.update(loss)", *EVALUATED)
    ),
    Promise(
        "not back-propagated",
        "TML103|TML201",
        ERROR,
        KEPT,
        ("meter.update(loss)", *EVALUATED),
        ("meter.update(loss)", *TRAINED),
    ),
    Promise(
        "back-propagated",
        "TML204|TML201",
        WARNING,
        KEPT,
        ("kept.append(out.cpu())", *TRAINED),
        ("kept.append(out.cpu())", *EVALUATED),
    ),
    Promise(
        "not back-propagated",
        "TML204|TML201",
        ERROR,
        KEPT,
        ("kept.append(out.cpu())", *EVALUATED),
        ("kept.append(out.cpu())", *TRAINED),
    ),
]
