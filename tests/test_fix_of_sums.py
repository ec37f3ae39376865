"""A total that begins as a number and to which nothing but unknown values is added may be a number: no method of tensors is called on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmemlint import check_paths

AGENT = """
import torch


class Agent:
    def __init__(self, env, actor, optimizer):
        self.env = env
        self.actor = actor
        self.optimizer = optimizer
        self.transition = []

    def act(self, state):
        action, dist = self.actor(torch.FloatTensor(state))
        self.transition = [state, dist.log_prob(action).sum()]
        return action.detach().numpy()

    def step(self, action):
        state, reward, done, _ = self.env.step(action)
        self.transition.extend([state, reward, done])
        return state, reward, done

    def update(self):
        _, log_prob, _, reward, _ = self.transition
        loss = -log_prob * reward
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def train(self, steps):
        scores = []
        score = {start}
        state = self.env.reset()
        for _ in range(steps):
            state, reward, done = self.step(self.act(state))
            self.update()
            {added}
            if done:
                state = self.env.reset()
                scores.append(score)
                score = {start}
        return scores
"""


@pytest.mark.parametrize("start", ["0", "0.0"])
@pytest.mark.parametrize("added", ["score += reward", "score += 0.99 * reward", "score -= reward"])
def test_a_sum_of_rewards_gets_no_method_of_tensors(tmp_path: Path, start: str, added: str) -> None:
    file = tmp_path / "agent.py"
    file.write_text(AGENT.replace("{start}", start).replace("{added}", added))
    findings = check_paths([file], isolated=True, options={"min-confidence": "low"})
    edits = [edit.content for finding in findings if finding.fix is not None for edit in finding.fix.edits]
    assert ".detach()" not in edits
