"""Sites of other shapes: scripts, recurrent state, views, GAN, comprehension, while, async, device lists."""

import torch
from torch import nn


def generator_step(generator, discriminator, reals, opt_g, opt_d):
    total = 0
    for real in reals:
        fake = generator(torch.randn(len(real), 16))
        d_loss = discriminator(real).mean() - discriminator(fake.detach()).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = -discriminator(fake).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        total += g_loss  # verdict: TML101 confirmed nodes per step
    return total


def carried(cell, steps):
    state = torch.zeros(1, 4)
    for x in steps:
        out, state = cell(x, state)  # verdict: TML104 confirmed graph per step
    return out


def views(encoder, loader):
    kept = []
    with torch.no_grad():
        for batch in loader:
            kept.append(encoder(batch)[:, 0])  # verdict: TML402 confirmed storage kept
    return kept


def outputs_on_the_device(model, loader):
    kept = []
    with torch.no_grad():
        for batch in loader:
            kept.append(model(batch.cuda()))  # verdict: TML401 confirmed tensors kept on the device
    return torch.cat(kept)


def outputs_on_the_host(model, loader):
    kept = []
    with torch.no_grad():
        for batch in loader:
            kept.append(model(batch.cuda()).cpu())  # verdict: TML401 refuted
    return torch.cat(kept)


def comprehension(model, loader):
    return [model(x) for x in loader]  # verdict: TML102 confirmed whole graph per step


def counted(model, loader, limit):
    kept, index = [], 0
    batches = iter(loader)
    while index < limit:
        x, y = next(batches)
        kept.append(nn.functional.mse_loss(model(x), y))  # verdict: TML102 confirmed graph per step
        index += 1
        if index > 100:
            break
    return kept


async def served(model, queue):
    kept = []
    async for request in queue:
        kept.append(model(request))  # verdict: TML102 confirmed whole graph per step
    return kept


def distilled(student, teacher, loader, optimizer):
    for x, y in loader:
        wanted = teacher(x)  # verdict: TML203 confirmed extra graph at peak
        loss = nn.functional.mse_loss(student(x), wanted.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def all_of_them(a, b, c):
    generator_step(a, b, c, None, None)
    carried(a, b)
    comprehension(a, b)
    counted(a, b, 3)
    served(a, b)
    distilled(a, b, c, None)
    views(a, b)
    outputs_on_the_device(a, b)
    outputs_on_the_host(a, b)


all_of_them(None, None, None)
