"""``TensorParallelTrainer``: each kind of a plan gives the numbers of the whole model."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import plain

import callboard as cb

torch = pytest.importorskip("torch")
nn = torch.nn

ADAM = cb.OptimizerKind.AdamW(lr=0.01)
CROSS = cb.LossKind.CrossEntropy()
TOKENS, CLASSES, WIDTH = 5, 11, 12


@pytest.fixture
async def three(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "4")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(3)]


def ids(rows: int = 6, steps: int = 3) -> list[tuple[Any, Any]]:
    draw = np.random.default_rng(1)
    given = draw.integers(0, CLASSES, (steps, rows, TOKENS))
    return list(zip(given, draw.integers(0, CLASSES, (steps, rows, TOKENS)), strict=True))


def points(rows: int = 6, steps: int = 3) -> list[tuple[Any, Any]]:
    draw = np.random.default_rng(1)
    return list(zip(draw.standard_normal((steps, rows, 6)), draw.integers(0, 3, (steps, rows)), strict=True))


async def check(
    devices: list[cb.Device], model: Any, plan: Any, data: Any, loss: Any = CROSS, **settings: Any
) -> dict[str, Any]:
    """The losses and weights of some steps are those of one process."""
    steps = settings.pop("optimizer", ADAM)
    made = model().double()
    async with cb.TensorParallelTrainer(
        made, plan=plan, optimizer=steps, loss=loss, devices=devices, **settings
    ) as training:
        losses = [(await training.step(batch)).loss for batch in data]
        weights = await training.state_dict()
    expected, state = plain(made, data, steps, loss, settings.get("gradient_clip"))
    assert np.allclose(losses, expected, rtol=0, atol=1e-11)
    assert weights.keys() == state.keys()
    for name, value in state.items():
        assert torch.allclose(weights[name], value, rtol=0, atol=1e-11), name
    return weights


def mlp() -> Any:
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_column_and_row(three: list[cb.Device], count: int) -> None:
    await check(three[:count], mlp, {"0": "column", "2": "row"}, points(), gradient_clip=0.3, micro_batch_size=4)


@pytest.mark.parametrize("plan", [{"0": "gathered"}, {"2": "row"}, {"?": "gathered"}, {"2": "vocabulary"}], ids=str)
async def test_kinds_that_stand_alone(three: list[cb.Device], plan: dict[str, str]) -> None:
    plan = {name: kind for name, kind in plan.items() if name != "?"} or {"0": "gathered", "2": "gathered"}
    await check(three[:2], mlp, plan, points())


class Tokens(nn.Module):
    """Embedding, one block of attention and one of linear layers, and logits."""

    def __init__(self, batch_first: bool = True, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH, padding_idx=2)
        self.drop = nn.Identity()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 3, batch_first=batch_first)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 20)
        self.fc2 = nn.Linear(20, WIDTH)
        self.norm3 = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=not tied)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, given: Any) -> Any:
        x = self.drop(self.embedding(given))
        y = self.norm1(x)
        y = y if self.attention.batch_first else y.transpose(0, 1)
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        y, _ = self.attention(y, y, y, attn_mask=mask, need_weights=False)
        x = x + (y if self.attention.batch_first else y.transpose(0, 1))
        x = x + self.fc2(torch.relu(self.fc1(self.norm2(x))))
        return self.head(self.norm3(x)).transpose(1, 2)


LINEAR = {"fc1": "column", "fc2": "row"}
NORMS = {"norm?": "sequence"}


@pytest.mark.parametrize(
    "plan",
    [
        {"embedding": "embedding"},
        {"attention": "heads"},
        NORMS,
        {"drop": "scatter", **LINEAR, **NORMS, "attention": "heads", "head": "gathered"},
        {"drop": "scatter", **LINEAR, **NORMS, "attention": "heads", "head": "vocabulary", "embedding": "embedding"},
        "auto",
    ],
    ids=["embedding", "heads", "sequence", "scatter", "all", "auto"],
)
@pytest.mark.parametrize("count", [2, 3])
async def test_a_transformer(three: list[cb.Device], plan: Any, count: int) -> None:
    await check(three[:count], Tokens, plan, ids())
