"""TML202 and TML203."""

from page_promises import ERROR, NET, NOTE, SILENT, START, WARNING, Promise

RUN = START.replace("train(", "evaluate(")

SHOWN = "print(net(x.cuda()).argmax(1))"

MISUSED = (
    NET
    + """
@1
def evaluate(loader):
    net = Net().cuda()
    net.eval()
    @2
    for x, y in loader:
        print(net(x.cuda()).argmax(1))
"""
    + RUN
)

YIELDED = (
    NET
    + """
def outputs(net, loader):
    @1
        for x, y in loader:
            yield net(x.cuda()), y

def train(loader):
    net, other = Net().cuda(), Net().cuda()
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for out, y in outputs(net, loader):
        @2
"""
    + START
)

STEPPED = "optimizer.zero_grad()\nF.cross_entropy(other(out), y.cuda()).backward()\noptimizer.step()"

VOLATILE = (
    NET
    + """
from torch.autograd import Variable

def evaluate(loader):
    net = @1
    for x, y in loader:
        @2
"""
    + RUN
)

OLD = "print(net(Variable(x.cuda(), volatile=True)).argmax(1))"

FLAGGED = (
    NET
    + """
def train(loader):
    net, head = Net().cuda(), nn.Linear(1000, 10).cuda()
    @1
    optimizer = torch.optim.SGD(head.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        @2
        F.cross_entropy(head(features), y.cuda()).backward()
        optimizer.step()
"""
    + START
)

FEATURES = "features = net(x.cuda())"

TEACHER = (
    NET
    + """
def train(loader):
    net, teacher = Net().cuda(), Net().cuda()
    @1
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        out = net(x.cuda())
        wanted = teacher(x.cuda())
        @2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    + START
)

DISTILLED = "loss = F.mse_loss(out, wanted.detach())"

POLICY = (
    NET
    + """
def train(loader):
    actor, critic, target = Net().cuda(), Net().cuda(), Net().cuda()
    @2
    first = torch.optim.SGD(actor.parameters(), 0.1)
    second = torch.optim.SGD(critic.parameters(), 0.1)
    for x, after in loader:
        loss = F.mse_loss(critic(x.cuda()), @1)
        second.zero_grad()
        loss.backward()
        second.step()
        goal = -critic(actor(x.cuda())).mean()
        first.zero_grad()
        goal.backward()
        first.step()
"""
    + START
)


PROMISES = [
    Promise(
        "enable_grad() as a statement, where grad mode is on",
        "TML202",
        NOTE,
        MISUSED,
        ("# plain", "torch.enable_grad()"),
        ("@torch.no_grad()", "torch.enable_grad()"),
    ),
    Promise(
        "a decorator without parentheses, from torch 2.1 on",
        "TML202",
        SILENT,
        MISUSED,
        ("@torch.no_grad", "pass"),
        ("@torch.no_grad", "pass"),
        target=("2.1", "2.0"),
    ),
    Promise(
        "a generator whose consumers train nothing",
        "TML202",
        NOTE,
        YIELDED,
        ("with torch.no_grad():", "print(out.argmax(1))"),
        ("with torch.no_grad():", STEPPED),
    ),
    Promise(
        "a generator that yields under no_grad",
        "TML202",
        WARNING,
        YIELDED,
        ("with torch.no_grad():", STEPPED),
        ("with torch.no_grad():", "print(out.argmax(1))"),
    ),
    Promise(
        "the decorator on a generator",
        "TML202",
        SILENT,
        YIELDED.replace("def outputs", "@3\ndef outputs"),
        ("if True:", STEPPED, "@torch.no_grad()"),
        ("with torch.no_grad():", STEPPED, "# plain"),
    ),
    Promise(
        "volatile where grad mode is off",
        "TML202",
        SILENT,
        VOLATILE,
        ("Net().cuda(); net.eval()", f"with torch.no_grad():\n    {OLD}"),
        ("Net().cuda(); net.eval()", OLD),
    ),
    Promise(
        "volatile where no network runs",
        "TML202",
        SILENT,
        VOLATILE,
        ("None", "v = Variable(x.cuda(), volatile=True)\nprint(v + 1)"),
        ("Net().cuda(); net.eval()", OLD),
    ),
    Promise(
        "volatile and a frozen network",
        "TML202",
        NOTE,
        VOLATILE,
        ("Net().cuda(); net.requires_grad_(False)", OLD),
        ("Net().cuda(); net.eval()", OLD),
    ),
    Promise(
        "volatile and a small network",
        "TML202",
        NOTE,
        VOLATILE,
        ("nn.Linear(64, 10).cuda(); net.eval()", OLD),
        ("Net().cuda(); net.eval()", OLD),
    ),
    Promise(
        "volatile and a network on the host",
        "TML202",
        NOTE,
        VOLATILE,
        ("Net(); net.eval()", OLD.replace(".cuda()", "")),
        ("Net().cuda(); net.eval()", OLD),
    ),
    Promise(
        "volatile in a constructor alone",
        "TML202",
        NOTE,
        NET
        + """
from torch.autograd import Variable

class Sizes:
    def __init__(self, net: Net):
        net.eval()
        @1

    def measure(self, net: Net, loader):
        net.eval()
        for x in loader:
            @2
""",
        ("print(net(Variable(torch.rand(1, 3, 224, 224).cuda(), volatile=True)).shape)", "pass"),
        ("pass", OLD),
    ),
    Promise(
        "the flag on a tensor",
        "TML202",
        SILENT,
        FLAGGED,
        ("pass", "x = x.float().cuda(); x.requires_grad = False\nfeatures = net(x)"),
        ("net.requires_grad = False", FEATURES),
    ),
    Promise(
        "the flag on a parameter",
        "TML202",
        SILENT,
        FLAGGED,
        ("net.head.weight.requires_grad = False", FEATURES),
        ("net.head.requires_grad = False", FEATURES),
    ),
    Promise(
        "a flag that the module itself reads",
        "TML202",
        SILENT,
        FLAGGED.replace("    def forward(self, x):", "    def forward(self, x):\n        print(@3)"),
        ("net.requires_grad = False", FEATURES, "self.requires_grad"),
        ("net.requires_grad = False", FEATURES, "x"),
    ),
    Promise(
        "a module that a loop freezes anyway",
        "TML202",
        SILENT,
        FLAGGED,
        ("net.requires_grad = False\nfor p in net.parameters(): p.requires_grad = False", FEATURES),
        ("net.requires_grad = False", FEATURES),
    ),
    Promise(
        "a module that a call freezes anyway",
        "TML202",
        SILENT,
        FLAGGED,
        ("net.requires_grad = False\nnet.requires_grad_(False)", FEATURES),
        ("net.requires_grad = False", FEATURES),
    ),
    Promise(
        "a module that runs under no_grad alone",
        "TML202",
        NOTE,
        FLAGGED,
        ("net.requires_grad = False", "with torch.no_grad():\n    features = net(x.cuda())"),
        ("net.requires_grad = False", FEATURES),
    ),
    Promise(
        "a module that is not frozen",
        "TML202",
        WARNING,
        FLAGGED,
        ("net.requires_grad = False", FEATURES),
        ("net.requires_grad = False", "with torch.no_grad():\n    features = net(x.cuda())"),
    ),
    Promise(
        "results are kept",
        "TML202",
        ERROR,
        MISUSED.replace("print(net(x.cuda()).argmax(1))", "@3"),
        ("# plain", "torch.no_grad(); kept = []", "kept.append(net(x.cuda()))"),
        ("# plain", "torch.no_grad(); kept = []", SHOWN),
    ),
    Promise(
        "results are dropped",
        "TML202",
        WARNING,
        MISUSED.replace("print(net(x.cuda()).argmax(1))", "@3"),
        ("# plain", "torch.no_grad(); kept = []", SHOWN),
        ("# plain", "torch.no_grad(); kept = []", "kept.append(net(x.cuda()))"),
    ),
    Promise("frozen parameters", "TML203", SILENT, TEACHER, ("teacher.requires_grad_(False)", DISTILLED), ("pass", DISTILLED)),
    Promise(
        "detached in one term, trained in another",
        "TML203",
        SILENT,
        TEACHER.replace("net.parameters(),", "[*net.parameters(), *teacher.parameters()],"),
        ("pass", DISTILLED + " + F.cross_entropy(wanted, y.cuda())"),
        ("pass", DISTILLED),
    ),
    Promise(
        "detached in one term, kept in another",
        "TML203",
        SILENT,
        TEACHER.replace("    for x, y", "    kept = []\n    for x, y").replace(".step()\n", ".step()\n    return kept\n"),
        ("pass", DISTILLED + "; kept.append(wanted)"),
        ("pass", DISTILLED),
    ),
    Promise(
        "a value with a graph that goes out of sight",
        "TML203",
        SILENT,
        TEACHER.replace("import torch\n", "import torch, ourlib\n", 1),
        ("pass", DISTILLED + "; ourlib.use(wanted * 2)"),
        ("pass", DISTILLED),
    ),
    Promise(
        "a policy that chooses the action for a target network",
        "TML203",
        SILENT,
        POLICY,
        ("target(actor(after.cuda()))", "pass"),
        ("actor(after.cuda())", "pass"),
        about="`actor(",
    ),
    Promise(
        "a frozen network that is given what has a graph",
        "TML203",
        SILENT,
        POLICY,
        ("target(actor(after.cuda()))", "target.requires_grad_(False)"),
        ("target(actor(after.cuda()))", "pass"),
        about="`target(",
    ),
]
