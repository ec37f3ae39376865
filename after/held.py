# twin: by hand
"""The dict of a checkpoint is held on the device while its model trains."""

import io

import torch
import torch.nn.functional as F
from torch import nn

torch.set_float32_matmul_precision("high")


def held_beside_the_model(buffer, batches, device="cpu"):
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
    saved = torch.load(buffer, map_location=device)
    net.load_state_dict(saved["net"])
    del saved
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


class Resumed:
    def __init__(self, net, path):
        self.net = net.cuda()
        self.saved = torch.load(path, map_location="cuda:0")
        self.net.load_state_dict(self.saved["net"])

    def quiet_fit(self, batches):
        # What the constructor holds is not followed to here.
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        for x, y in batches:
            optimizer.zero_grad()
            F.mse_loss(self.net(x), y).backward()
            optimizer.step()


def quiet_only_a_number_is_kept(net, path, batches, device):
    saved = torch.load(path, map_location=device)
    net.cuda().load_state_dict(saved["net"])
    epoch = saved["epoch"]
    saved = None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    return epoch


def quiet_let_go_before_training(buffer, batches, device="cuda"):
    net = nn.Linear(64, 64).to(device)
    saved = torch.load(buffer, map_location=device)
    net.load_state_dict(saved["net"])
    del saved
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()


def quiet_held_on_the_host(buffer, batches):
    net = nn.Linear(64, 64).to("cuda")
    saved = torch.load(buffer, map_location="cpu")
    net.load_state_dict(saved["net"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        optimizer.step()
    return saved["epoch"]


def run(steps: int):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    buffer = io.BytesIO()
    torch.save({"net": net.state_dict()}, buffer)
    buffer.seek(0)
    del net
    return held_beside_the_model(buffer, [(torch.randn(4, 64), torch.randn(4, 64)) for _ in range(steps)])
