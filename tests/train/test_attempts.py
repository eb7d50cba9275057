"""Steps that fail or are cancelled midway, and arguments and schedules that cannot be: nothing of them stays."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import Arrays, batches, mlp

import callboard as cb
from callboard.train import checkpoints
from callboard.train.states import Kept

torch = pytest.importorskip("torch")

SGD = cb.OptimizerKind.Sgd(lr=0.1, momentum=0.9)
CROSS = cb.LossKind.CrossEntropy()


class Faulty(torch.optim.SGD):
    """Fails after its third step has changed the weights."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, 0.1)
        self.count = 0

    def step(self, closure: Any = None) -> None:
        super().step()
        self.count += 1
        if self.count == 3:
            raise RuntimeError("midway")


class Opaque(torch.nn.Linear):
    """Its state has an object that only running code can read again."""

    def get_extra_state(self) -> Any:
        return Path()

    def set_extra_state(self, state: Any) -> None: ...


async def opened(system: cb.System, model: Any = mlp, **settings: Any) -> cb.DataParallelTrainer:
    device = await system.device("cpu", isolation="thread")
    settings = {"optimizer": SGD, "loss": CROSS, "devices": [device], **settings}
    return cb.DataParallelTrainer(model, **settings)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


async def test_the_weights_are_those_before_an_update_that_failed() -> None:
    data = batches(4, 4)
    async with cb.System() as system, await opened(system, optimizer=lambda parameters: Faulty(parameters)) as training:
        for batch in data[:2]:
            await training.step(batch)
        before = await training.state_dict()
        with pytest.raises(RuntimeError, match="midway"):
            await training.step(data[2])
        assert same(before, await training.state_dict())
        assert (await training.step(data[3])).step == 3


async def test_a_step_that_was_cancelled_after_its_update_was_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = batches(3, 4)
    async with cb.System() as system, await opened(system) as training:
        initial = await training.state()
        await training.step(first)
        members = training._training()
        take = members.take

        async def cancelled(*arguments: Any) -> Any:
            await take(*arguments)
            raise asyncio.CancelledError

        with monkeypatch.context() as patch:
            patch.setattr(members, "take", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await training.step(second)
        stats = await training.step(third)
        weights = await training.state_dict()
        training._done, members.begun = 0, 1  # back to the start, and without the cancelled step
        training._snapshots.take(Kept([initial]))
        await training.step(first)
        assert (await training.step(third)).loss == stats.loss
        assert same(weights, await training.state_dict())


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), -1.0])
async def test_a_schedule_without_a_step_size_is_refused(factor: float) -> None:
    async with cb.System() as system, await opened(system, schedule=lambda _: factor) as training:
        with pytest.raises(ValueError, match=f"schedule gave {factor} for update 0"):
            await training.step(batches(1, 4)[0])
        assert all(value.isfinite().all() for value in (await training.state_dict()).values())


async def test_checkpoints_of_one_step_at_once_and_after_a_cancelled_one(tmp_path: Path) -> None:
    async with cb.System() as system, await opened(system) as training:
        await asyncio.gather(*(training.save(tmp_path) for _ in range(4)))
        given_up = asyncio.ensure_future(training.save(tmp_path))
        await training.state()  # it is in line behind the save, whose files are being written now
        given_up.cancel()
        await training.save(tmp_path)
        assert await training.resume(tmp_path) == 0
    assert os.listdir(tmp_path) == ["step-00000000"]


async def test_the_newest_checkpoint_stays_beside_those_of_later_steps(tmp_path: Path) -> None:
    (tmp_path / "step-00000007").mkdir()
    async with cb.System() as system, await opened(system) as training:
        for batch in batches(2, 4):
            await training.step(batch)
            place = await training.save(tmp_path, keep=1)
    assert sorted(os.listdir(tmp_path)) == [place.name, "step-00000007"]


async def test_a_checkpoint_that_cannot_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cb.System() as system, await opened(system) as training:
        await training.save(tmp_path)
        rename = Path.rename

        def full(path: Path, target: Path) -> Path:
            if path.name.endswith(".partial"):
                raise OSError("no space is left")
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", full)
            with pytest.raises(OSError, match="no space"):
                await training.save(tmp_path)
        assert await training.resume(tmp_path) == 0
    assert os.listdir(tmp_path) == ["step-00000000"]


async def test_a_state_that_could_not_be_read_again_is_not_saved(tmp_path: Path) -> None:
    async with cb.System() as system, await opened(system, lambda: Opaque(6, 3)) as training:
        with pytest.raises(TypeError, match=r"has an object that a checkpoint cannot hold.*pathlib"):
            await training.save(tmp_path)
    assert os.listdir(tmp_path) == []


async def test_damaged_checkpoints_are_named(tmp_path: Path) -> None:
    async with cb.System() as system, await opened(system) as training:
        await training.step(batches(1, 4)[0])
        place = await training.save(tmp_path)
        before = await training.state_dict()
        older = tmp_path / "step-00000000"
        shutil.copytree(place, older)
        rest = torch.load(place / "trainer.pt")
        for name in ("trainer.pt", "model.safetensors"):
            good = (place / name).read_bytes()
            flipped = good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]
            for bad in (b"", good[:30], good[: len(good) // 2], flipped, b"cos\ngetcwd\n(tR.", bytes(300)):
                (place / name).write_bytes(bad)
                with pytest.raises(
                    RuntimeError, match=f"the checkpoint {place} cannot be read.*damaged.*from {older},"
                ):
                    await training.resume(tmp_path)
            (place / name).unlink()
            with pytest.raises(RuntimeError, match=f"the checkpoint {place} cannot be read.*damaged"):
                await training.resume(place)
            (place / name).write_bytes(good)
        shutil.rmtree(older)
        (place / "sums.json").unlink()  # as before there were checksums
        with pytest.raises(FileNotFoundError, match=f"there is no checkpoint {older}"):
            await training.resume(older)
        for bad in ({}, [1], {**rest, "step": "x"}, {**rest, "updates": -1}, {**rest, "rates": ["x"]}):
            torch.save(bad, place / "trainer.pt")
            with pytest.raises(RuntimeError, match=rf"the checkpoint {place} cannot be read.*no earlier one"):
                await training.resume(tmp_path)
        torch.save({**rest, "optimizer": {"state": 5}}, place / "trainer.pt")
        with pytest.raises(RuntimeError, match="does not fit; it is damaged, or of another model"):
            await training.resume(tmp_path)
        assert same(before, await training.state_dict())
    (tmp_path / "step-00000009").write_text("no folder")
    assert checkpoints.latest(tmp_path) == place


async def test_fit_looks_at_its_arguments_first_and_awaits_the_hook(tmp_path: Path) -> None:
    seen = []

    async def hook(stats: Any) -> None:
        await asyncio.sleep(0)
        seen.append(stats.step)

    data: Arrays = batches(1, 6)[0]
    (tmp_path / "file").touch()
    async with cb.System() as system, await opened(system) as training:
        for wrong, error in (
            ({"keep": 0}, ValueError),
            ({"batch_size": 2.5}, TypeError),
            ({"checkpoints": tmp_path / "file" / "x"}, OSError),
        ):
            settings: Any = {"batch_size": 2, "checkpoints": tmp_path, **wrong}
            with pytest.raises(error):
                await training.fit(data, **settings)
        assert training.steps == 0
        await training.fit(data, batch_size=2, on_step=hook)
        with pytest.raises(ValueError, match="the data has no samples"):
            await training.fit(data[0][:0], batch_size=2)
    assert seen == [1, 2, 3]


async def test_checkpoints_are_at_multiples_of_the_step_also_after_a_resume(tmp_path: Path) -> None:
    data: Arrays = batches(1, 8)[0]
    settings: Any = {"batch_size": 1, "checkpoints": tmp_path, "checkpoint_every": 3, "keep": None}
    async with cb.System() as system, await opened(system) as training:
        await training.fit(data, steps=2, **settings)
        await training.resume(tmp_path)
        await training.fit(data, steps=7, **settings)
    assert [int(name[5:]) for name in sorted(os.listdir(tmp_path))] == [2, 3, 6, 7]


class Telling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x: Any, y: Any) -> Any:
        return {"loss": torch.nn.functional.cross_entropy(self.layer(x), y)}


async def test_classes_of_any_whole_dtype_and_a_loss_in_a_dict() -> None:
    x, y = batches(1, 4)[0]
    still = cb.OptimizerKind.Sgd(lr=0.0)
    weighted = cb.LossKind.WeightedCrossEntropy([1.0, 1.0, 1.0])
    losses = set()
    async with cb.System() as system:
        for loss in (CROSS, weighted):
            async with await opened(system, optimizer=still, loss=loss) as training:
                losses |= {round((await training.step((x, y.astype(dtype)))).loss, 6) for dtype in ("i8", "i4", "u1")}
        async with await opened(system, Telling, loss=None) as training:
            assert (await training.step((x, y))).loss > 0
    assert len(losses) == 1


async def test_arrays_in_every_form() -> None:
    x, y = batches(1, 4)[0]
    async with cb.System() as system, await opened(system) as training:
        assert (await training.step((x.astype(">f4"), y.astype(">i8")))).loss > 0
        assert (await training.step((torch.as_tensor(x).bfloat16(), y))).loss > 0
        for wrong in (
            np.ma.masked_array(x, x > 0),
            x.astype(np.longdouble),
            torch.as_tensor(x).to_sparse(),
            torch.as_tensor(x).to("meta"),
        ):
            with pytest.raises(TypeError, match=r"batch\[0\]"):
                await training.step((wrong, y))


@pytest.mark.parametrize("weights", [[], [1.0, -1.0], [float("nan")], [float("inf")], [10**400]])
def test_weights_of_classes_are_finite(weights: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"weights are .*at least 0, and finite"):
        cb.LossKind.WeightedCrossEntropy(weights)
