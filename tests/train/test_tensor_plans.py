"""``TensorParallelTrainer``: each kind of a plan gives the numbers of the whole model."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import plain

import callboard as cb

torch = pytest.importorskip("torch")
nn = torch.nn

# The bias of keys has no gradient: with a small eps, Adam would make steps of the noise of rounding.
ADAM = cb.OptimizerKind.AdamW(lr=0.01, eps=1e-4)
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


@pytest.mark.parametrize("plan", [{"0": "gathered"}, {"2": "row"}, {"[02]": "gathered"}, {"2": "vocabulary"}], ids=str)
async def test_kinds_that_stand_alone(three: list[cb.Device], plan: dict[str, str]) -> None:
    await check(three[:2], mlp, plan, points())


class Tokens(nn.Module):
    """Embedding, one block of attention and one of linear layers, and logits."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH, padding_idx=2)
        self.drop = nn.Identity()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 3, batch_first=batch_first)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, 20)
        self.fc2 = nn.Linear(20, WIDTH)
        self.norm3 = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

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


class Written(nn.Module):
    """Attention that is written out, with one layer for queries, keys and values, or with fewer heads of keys."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.width = 4, 4 if is_fused else 2, 3
        if is_fused:
            self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        else:
            self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
            self.k_proj, self.v_proj = (nn.Linear(WIDTH, 6, bias=False) for _ in range(2))
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        if hasattr(self, "c_attn"):
            q, k, v = self.c_attn(x).chunk(3, -1)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q = q.view(*x.shape[:2], self.num_heads, self.width).transpose(1, 2)
        k, v = (each.view(*x.shape[:2], self.num_kv_heads, self.width).transpose(1, 2) for each in (k, v))
        k, v = (each.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for each in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Around(nn.Module):
    def __init__(self, is_fused: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)
        self.attention = Written(is_fused)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, given: Any) -> Any:
        x = self.embedding(given)
        return self.head(x + self.attention(self.norm(x))).transpose(1, 2)


def with_fewer_keys() -> Any:
    return Around(is_fused=False)


@pytest.mark.parametrize("model", [Around, with_fewer_keys])
async def test_attention_that_is_written_out_and_tied_weights(three: list[cb.Device], model: Any) -> None:
    smooth = cb.LossKind.CrossEntropy(label_smoothing=0.1)
    steps = cb.OptimizerKind.Sgd(lr=0.1, momentum=0.9)  # AdamW makes steps of the rounding errors in biases of keys
    await check(three[:2], model, "auto", ids(), smooth, optimizer=steps)
    plan = {"embedding": "scatter", "norm": "sequence", "attention": "heads"}
    await check(three[:2], model, {"norm": "sequence", "attention": "heads"}, ids(), optimizer=steps)
    with pytest.raises(ValueError, match=r"cut by tokens, as that of 'attention\.c_proj' is; plan its last"):
        await check(three[:2], model, plan, ids())


async def test_other_attention_and_losses(three: list[cb.Device]) -> None:
    plan = {"attention": "heads", "head": "vocabulary"}
    weights = cb.LossKind.WeightedCrossEntropy(np.linspace(0.5, 1.5, CLASSES).tolist())
    await check(three[:2], lambda: Tokens(batch_first=False), plan, ids(), weights)


class Other(nn.Module):
    """Gives another shape, or more than one tensor, to the module behind it."""

    def __init__(self, gives: Any) -> None:
        super().__init__()
        self.gives = gives

    def forward(self, x: Any) -> Any:
        return self.gives(x)


def behind(gives: Any, **more: Any) -> Any:
    """A model in which ``other`` stands before a linear layer."""
    parts = {"embedding": nn.Embedding(CLASSES, WIDTH), "other": Other(gives), "head": nn.Linear(WIDTH, CLASSES)}
    return lambda: nn.Sequential(OrderedDict({**parts, **more}))


@pytest.mark.parametrize(
    "model, plan, error, says",
    [
        (
            behind(lambda x: x.flatten(0, 1)),
            {"embedding": "scatter", "head": "gathered"},
            ValueError,
            "plan: 'head' gets a tensor of shape .* behind 'scatter'",
        ),
        (
            behind(lambda x: x.flatten(0, 1), other2=nn.LayerNorm(CLASSES)),
            {"embedding": "scatter", "other2": "sequence"},
            ValueError,
            "plan: 'other2' gets a tensor of shape .* behind 'scatter'",
        ),
        (
            behind(lambda x: (x, x)),
            {"other": "scatter", "head": "gathered"},
            TypeError,
            "plan: 'other' gives a tuple; 'scatter' is for modules that give one tensor",
        ),
        (
            behind(lambda x: x),
            {"head": "vocabulary"},
            ValueError,
            r"has the shape \[6, 5, 6\]; behind the 'vocabulary' layer 'head', its second axis has the classes",
        ),
    ],
)
async def test_errors_of_a_plan_name_the_module(
    three: list[cb.Device], model: Any, plan: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await check(three[:2], model, plan, ids())
