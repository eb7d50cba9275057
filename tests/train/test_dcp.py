"""Checkpoints of ``torch.distributed.checkpoint``: torch loads them, with the optimizer's state by names."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.train.training_lab import batches, mlp

import callboard as cb

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # the package takes seconds to import

SETTINGS: dict[str, Any] = {"optimizer": cb.OptimizerKind.AdamW(lr=0.01), "loss": cb.LossKind.CrossEntropy()}


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


@pytest.mark.parametrize(
    "kind, given",
    [
        (cb.DataParallelTrainer, {}),
        (cb.DataParallelTrainer, {"shard": "zero1"}),
        (cb.TensorParallelTrainer, {"plan": {"0": "column", "2": "row"}}),
        (cb.PipelineParallelTrainer, {"stages": 2}),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.distributed is")
async def test_torch_loads_it(pair: list[cb.Device], tmp_path: Path, kind: Any, given: Any) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    first, second, third = batches(3, 6)
    async with kind(mlp, devices=pair, **SETTINGS, **given) as training:
        await training.step(first)
        await training.save_dcp(tmp_path / "dcp")  # replaced
        await training.step(second)
        await training.save_dcp(tmp_path / "dcp")
        weights = await training.state_dict()
        loss = (await training.step(third)).loss
        after = await training.state_dict()
    model = mlp()
    rule = torch.optim.AdamW(model.parameters(), 0.5)
    model_state, rule_state = get_state_dict(model, rule)
    load({"model": model_state, "optimizer": rule_state}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    set_state_dict(model, rule, model_state_dict=model_state, optim_state_dict=rule_state)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    found = torch.nn.functional.cross_entropy(model(torch.as_tensor(third[0])), torch.as_tensor(third[1]))
    found.backward()
    rule.step()
    assert float(found.detach()) == pytest.approx(loss, abs=1e-6)
    assert all(torch.allclose(after[name], value, atol=1e-5) for name, value in model.state_dict().items())


async def test_one_that_cannot_be_written_leaves_nothing(
    pair: list[cb.Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.checkpoint import state_dict_saver

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("no space is left")

    async with cb.DataParallelTrainer(mlp, devices=pair, **SETTINGS) as training:
        with monkeypatch.context() as patch:
            patch.setattr(state_dict_saver, "save", full)
            with pytest.raises(OSError, match="no space is left"):
                await training.save_dcp(tmp_path / "dcp")
    assert not os.listdir(tmp_path)
