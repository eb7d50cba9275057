"""Optimizers without torch's compiler: the same numbers, and hooks as before."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys
import torch
from callboard.train.kinds import optimizer_of, OptimizerKind

def trained(make):
    torch.manual_seed(0)
    model, seen = torch.nn.Linear(8, 8), []
    rule = make(list(model.parameters()))
    rule.register_step_post_hook(lambda *_: seen.append(1))
    def loss():
        for one in model.parameters():
            one.grad = None
        value = (model(torch.ones(2, 8)) ** 2).sum()
        value.backward()
        return value
    for _ in range(3):
        loss()
        rule.step(loss)
        rule.load_state_dict(rule.state_dict())
    assert len(seen) == 3
    return [one.detach() for one in model.parameters()]

optim = torch.optim
kinds = {
    OptimizerKind.AdamW(): lambda weights: optim.AdamW(weights),
    OptimizerKind.Sgd(0.1, 0.9): lambda weights: optim.SGD(weights, 0.1, 0.9),
    optim.Rprop: optim.Rprop,
}
ours = [trained(lambda weights: optimizer_of(kind, weights)) for kind in kinds]
assert "torch._dynamo" not in sys.modules
sys.modules["torch._dynamo"] = type(sys)("torch._dynamo")  # a compiler that does nothing
torch._dynamo = sys.modules["torch._dynamo"]
torch._dynamo.graph_break = lambda: None
theirs = [trained(make) for make in kinds.values()]
assert all(torch.equal(a, b) for one, other in zip(ours, theirs) for a, b in zip(one, other))
"""


def test_optimizers_do_not_load_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False)
    assert not done.returncode, done.stderr
