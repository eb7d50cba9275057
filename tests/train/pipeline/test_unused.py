"""``PipelineParallelTrainer``: parameters and buffers that no recorded call uses keep their places and values."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import batches, plain

import callboard as cb
from callboard.train.pipeline.splitting import split

torch = pytest.importorskip("torch")
nn = torch.nn

DECAYING = cb.OptimizerKind.AdamW(lr=0.01, weight_decay=0.1)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


class Partly(nn.Module):
    """Has a layer, a parameter, and buffers that no call uses, and another name of a weight that one does."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 8)
        self.unused = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.middle = nn.Linear(8, 8)
        self.alone = nn.Parameter(torch.arange(3.0))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("mask", torch.tensor([1, 0]))
        self.register_buffer("hidden", torch.ones(1), persistent=False)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.middle.weight
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(torch.tanh(self.middle(torch.tanh(self.enter(x))))))


def in_a_row() -> nn.Module:
    """A sequence with a parameter of its own."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model.register_parameter("own", nn.Parameter(torch.arange(2.0)))
    model.register_buffer("mask", torch.tensor([1, 0]))
    return model


@pytest.mark.few(4)
@pytest.mark.parametrize("make", [Partly, in_a_row])
@pytest.mark.parametrize("stages", [1, 2])
async def test_the_state_is_that_of_torch(pair: list[cb.Device], make: Any, stages: int) -> None:
    torch.manual_seed(0)
    model, data = make().double(), batches(4, 6, "f8")
    losses, expected = plain(copy.deepcopy(model), data, DECAYING)
    async with cb.PipelineParallelTrainer(
        model,
        optimizer=DECAYING,
        loss=cb.LossKind.CrossEntropy(),
        devices=pair[:stages],
        stages=stages,
        micro_batch_size=6,
    ) as training:
        found = [(await training.step(batch)).loss for batch in data]
        state = await training.state_dict()
    assert np.allclose(found, losses, rtol=0, atol=1e-12)
    trained = make().double()
    trained.load_state_dict(state, strict=True)  # in plain torch
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(state[name], value, rtol=0, atol=1e-12), name
    for name in {"alone", "frozen", "mask", "own", "unused.0.weight", "unused.1.running_mean"} & expected.keys():
        assert torch.equal(state[name], model.state_dict()[name]), name


async def test_a_run_is_resumed_with_other_stages(pair: list[cb.Device], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Partly(), batches(4, 6)
    settings: Any = {"optimizer": DECAYING, "loss": cb.LossKind.CrossEntropy(), "micro_batch_size": 6}
    async with cb.PipelineParallelTrainer(model, devices=pair, stages=2, **settings) as training:
        for batch in data[:2]:
            await training.step(batch)
        await training.save(tmp_path)
        expected = [(await training.step(batch)).loss for batch in data[2:]]
    async with cb.PipelineParallelTrainer(Partly, devices=pair[:1], stages=1, **settings) as training:
        assert await training.resume(tmp_path) == 2
        assert [(await training.step(batch)).loss for batch in data[2:]] == expected


@pytest.mark.parametrize("at", [1, 2, 4, ["middle"], ["head"]])
def test_other_names_of_a_weight_are_where_it_is(at: Any) -> None:
    model = Partly()
    stages, _ = split(model, at)
    names = [name for stage in stages for name in stage.module.state_dict()]
    assert sorted(names) == sorted(model.state_dict())
    [place] = [stage for stage in stages if "middle.weight" in stage.module.state_dict()]
    assert place.module.get_parameter("tied.weight") is place.module.get_parameter("middle.weight")
    assert stages[0].module.get_parameter("alone") is model.alone


@pytest.mark.parametrize("name", ["graph", "code", "meta", "recompile", "print_readable", "delete_submodule"])
def test_an_unused_layer_may_have_the_name_of_something_that_a_traced_module_has(name: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
            self.add_module(name, nn.Linear(8, 8))

        def forward(self, x: Any) -> Any:
            return self.head(torch.tanh(self.enter(x)))

    model = Named()
    stages, _ = split(model, ["head"])
    assert sorted(key for stage in stages for key in stage.module.state_dict()) == sorted(model.state_dict())
