"""Backward passes in two parts: the bits of one part, and no product twice."""

from typing import Any

import pytest

from callboard.train.pipeline.backward import input_gradients, whole

torch = pytest.importorskip("torch")
nn = torch.nn


class Twice(nn.Module):
    """One weight in two places of the trunk: the pass cannot be split."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.inner(torch.tanh(self.inner(x)))


class Beside(nn.Module):
    """An output that no input reaches, and weights behind weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Any) -> Any:
        return x * torch.sigmoid(self.scale * 2.0), self.shift.exp()


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.LayerNorm(8)),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "convolutions": lambda: nn.Sequential(nn.Conv1d(5, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 2, 3)),
    "twice": Twice,
    "beside": Beside,
}


@pytest.mark.parametrize("name", MODELS)
def test_two_parts_give_the_bits_of_one(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    parameters = list(model.parameters())
    x = torch.randn(3, 5, 8)

    def forward() -> tuple[Any, list[Any], list[Any]]:
        model.zero_grad()
        leaf = x.clone().requires_grad_()
        outputs = model(leaf)
        roots = list(outputs) if isinstance(outputs, tuple) else [outputs]
        return leaf, roots, [torch.ones_like(root) * 0.3 for root in roots]

    leaf, roots, gradients = forward()
    (expected,) = whole(roots, gradients, [leaf])
    weights = [one.grad.clone() for one in parameters]
    leaf, roots, gradients = forward()
    (found,), rest = input_gradients(roots, gradients, [leaf])
    assert torch.equal(found, expected)
    assert (rest is None) == (name == "twice")
    if rest is not None:
        assert all(one.grad is None for one in parameters)
        rest()
    assert all(torch.equal(one.grad, weight) for one, weight in zip(parameters, weights, strict=True))


def test_no_product_is_computed_twice() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    leaf = torch.randn(4, 8, requires_grad=True)
    counted = []
    for split in (False, True):
        root = model(leaf)
        with FlopCounterMode(display=False) as counter:
            if split:
                _, rest = input_gradients([root], [torch.ones_like(root)], [leaf])
                assert rest is not None
                rest()
            else:
                whole([root], [torch.ones_like(root)], [leaf])
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0


def test_gradients_of_later_uses_come_first() -> None:
    leaf = torch.tensor([1.0], requires_grad=True)
    (found,) = whole([leaf * 3.0, leaf], [torch.ones(1), torch.tensor([10.0])], [leaf])
    assert found == 13.0
    (found,), _ = input_gradients([leaf * 3.0, leaf], [torch.ones(1), torch.tensor([10.0])], [leaf])
    assert found == 13.0
    assert input_gradients([], [], [leaf])[0] == [None]
