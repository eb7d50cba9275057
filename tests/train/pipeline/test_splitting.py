"""A model in stages: its cuts, its names, and the values that pass several cuts."""

import itertools
from typing import Any

import pytest

from callboard.train.pipeline.splitting import balanced, ports_of, split

torch = pytest.importorskip("torch")
nn = torch.nn


class Residual(nn.Module):
    """Its first values are used at the end again, a scale and a mask in between."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.scale = nn.Parameter(torch.full((4,), 0.5))
        self.register_buffer("shift", torch.ones(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any, mask: Any) -> Any:
        first = h = self.enter(x)
        for layer in self.layers:
            h = layer(h) + self.shift
        return self.head((h * self.scale.exp() + first) * mask)


def run(stages: Any, entry: list[str], inputs: list[Any]) -> Any:
    values: dict[str, Any] = dict(zip(entry, inputs, strict=True))
    for stage in stages:
        outputs = stage.module(**{name: values[name] for name in stage.ports.inputs})
        if stage.ports.outputs:
            values |= zip(stage.ports.outputs, outputs, strict=True)
    return outputs


@pytest.mark.parametrize("at", [["layers.1", "layers.2"], ["layers.0", "layers.1", "layers.2"], 1, 2, 4])
def test_a_cut_model_computes_the_same(at: Any) -> None:
    model = Residual()
    stages, entry = split(model, at)
    assert entry == ["x", "mask"]
    assert len(stages) == (at if isinstance(at, int) else len(at) + 1)
    inputs = [torch.randn(3, 4), torch.ones(4)]
    assert torch.equal(run(stages, entry, inputs), model(*inputs))
    names = [name for stage in stages for name, _ in stage.module.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    if at == ["layers.1", "layers.2"]:
        assert stages[0].ports.outputs == ["enter", "add"]
        assert stages[1].ports.inputs == ["add"]
        assert stages[2].ports.inputs == ["add_1", "enter", "mask"]


def test_a_sequence_is_cut_between_its_children() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    stages, entry = split(model, 2)
    assert [list(dict(stage.module.named_children())) for stage in stages] == [["0", "1"], ["2", "3", "4"]]
    assert entry == ["input"]
    stages, _ = split(model, ["3"])
    assert [len(stage.module) for stage in stages] == [3, 2]


@pytest.mark.parametrize("weights, parts", [([3, 1, 4, 1, 5], 3), ([0, 0, 7], 2), ([1] * 6, 6), ([5, 1, 1, 1], 1)])
def test_the_heaviest_part_is_as_light_as_can_be(weights: list[int], parts: int) -> None:
    def heaviest(cuts: Any) -> int:
        return max(sum(weights[start:stop]) for start, stop in itertools.pairwise([0, *cuts, len(weights)]))

    options = itertools.combinations(range(1, len(weights)), parts - 1)
    assert heaviest(balanced(weights, parts)) == min(map(heaviest, options))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.embed(x))


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.one(x) if x.sum() > 0 else self.two(x)


def test_cuts_that_cannot_be() -> None:
    for model, at, error, message in [
        (Residual(), ["layers.7"], ValueError, "names 'layers.7', which the model does not call"),
        (Residual(), ["head", "layers.1"], ValueError, "in the order in which they are called"),
        (Tied(), ["head"], ValueError, "stages 0 and 1 share the weight 'head.weight'"),
        (Deciding(), 2, TypeError, "Deciding cannot be cut.*pass a list of stages"),
        (nn.Sequential(nn.Linear(2, 2)), 2, ValueError, "1 modules in a row, too few for 2 stages"),
    ]:
        with pytest.raises(error, match=message):
            split(model, at)


def writing(self: Any, x: Any) -> Any:
    self.count.add_(1)
    return self.one(x) * self.count


def replacing(self: Any, x: Any) -> Any:
    self.count = self.count + 1
    return self.one(x) * self.count


def drawing(self: Any, x: Any) -> Any:
    return self.one(x) * torch.rand(4)


def without_gradient(self: Any, x: Any) -> Any:
    with torch.no_grad():
        h = self.one(x)
    return self.two(h)


def in_bfloat(self: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = self.one(x)
    return self.two(h.float())


def as_recorded(self: Any, x: Any) -> Any:
    with torch.no_grad():
        scale = torch.full((4,), 2.0)
    h = nn.functional.dropout(self.one(x) * self.count * scale, 0.5, self.training)
    return self.two(h + torch.rand_like(h))


@pytest.mark.parametrize(
    "forward, message",
    [
        (writing, "writes the buffer 'count'"),
        (replacing, "replaces the buffer 'count'"),
        (drawing, r"draws random numbers \(torch.rand\)"),
        (without_gradient, "turns gradients or autocast on or off"),
        (in_bfloat, "turns gradients or autocast on or off"),
        (as_recorded, ""),
    ],
)
def test_what_a_recording_would_do_once_is_refused(forward: Any, message: str) -> None:
    model = type("Odd", (Deciding,), {"forward": forward})()
    model.register_buffer("count", torch.ones(()))
    if message:
        with pytest.raises(TypeError, match=f"Odd cannot be cut: it {message}.*pass a list of stages"):
            split(model, 1)
    else:
        assert len(split(model, ["two"])[0]) == 2


def test_other_models_are_not_touched_while_one_is_recorded() -> None:
    seen: list[Any] = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            seen.append((nn.Module.__call__, nn.Linear.__call__))
            return self.inner(torch.relu(self.inner(x)))

    before = nn.Module.__call__, nn.Linear.__call__
    model = Looking()
    split(model, 1)
    assert set(seen) == {before}  # in both modes
    assert type(model) is Looking
    assert type(model.inner) is nn.Linear


def test_parameters_of_a_stage() -> None:
    class Stage(nn.Module):
        def forward(self, x: Any, skip: Any, mask: Any = None) -> Any:
            return x + skip

    ports = ports_of(Stage())
    assert (ports.inputs, ports.optional, ports.several) == (["x", "skip", "mask"], ["mask"], False)
