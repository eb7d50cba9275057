"""Data of ``fit``: every form of it gives the same numbers, and goes on where a checkpoint was."""

import asyncio
import multiprocessing
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.train.training_lab import dropping, mlp

import callboard as cb
from callboard.train.running import feed

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402 - torch may be missing

ROWS, SIZE = 22, 4
X = np.random.default_rng(0).standard_normal((ROWS, 6)).astype("f4")
Y = np.random.default_rng(1).integers(0, 3, ROWS)


@pytest.fixture
async def device() -> AsyncIterator[cb.Device]:
    async with cb.System() as system:
        yield await system.device("cpu", isolation="thread")


def trainer(device: cb.Device, model: Any = mlp, **settings: Any) -> cb.DataParallelTrainer:
    kinds = {"loss": cb.LossKind.CrossEntropy(), "optimizer": cb.OptimizerKind.AdamW(lr=0.01)}
    return cb.DataParallelTrainer(model, devices=[device], **{**kinds, **settings})


def samples() -> Any:
    return TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))


class Samples(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(X, Y, strict=True)


def in_batches() -> Iterator[Any]:
    """One array for all batches, as some readers have it."""
    x = np.empty((SIZE, 6), "f4")
    for start in range(0, ROWS, SIZE):
        rows = len(X[start : start + SIZE])
        x[:rows] = X[start : start + SIZE]
        yield x[:rows], Y[start : start + SIZE]


async def awaited() -> AsyncIterator[Any]:
    for batch in in_batches():
        await asyncio.sleep(0)
        yield tuple(map(np.copy, batch))


class Batches:
    def __iter__(self) -> Iterator[Any]:
        return in_batches()


FORMS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "arrays": (lambda: (X, Y), {"batch_size": SIZE, "shuffle": False}),
    "data set": (samples, {"batch_size": SIZE, "shuffle": False}),
    "loader": (lambda: DataLoader(samples(), SIZE), {}),
    "iterable data set of samples": (Samples, {"batch_size": SIZE}),
    "iterable": (Batches, {}),
    "function": (lambda: in_batches, {}),
    "asynchronous function": (lambda: awaited, {}),
}


async def test_all_forms_give_the_same_numbers(device: cb.Device) -> None:
    losses = {}
    for name, (data, settings) in FORMS.items():
        async with trainer(device) as training:
            history = await training.fit(data(), epochs=2, **settings)
            losses[name] = history.losses
            assert training.cursor.epoch == 2
            assert not (await training.fit(data(), epochs=2, **settings)).steps
            assert len((await training.fit(data(), steps=14, **settings)).steps) == 2
    assert len(losses["arrays"]) == 12
    assert all(one == losses["arrays"] for one in losses.values())


async def test_an_iterator_is_read_once_and_goes_on(device: cb.Device) -> None:
    for batches in (in_batches(), awaited()):
        async with trainer(device) as training:
            first = await training.fit(batches, steps=2)
            rest = await training.fit(batches)
            assert [one.samples for one in (*first.steps, *rest.steps)] == [4, 4, 4, 4, 4, 2]
            assert len((await training.fit((X, Y), batch_size=SIZE)).steps) == 6  # a pass of its own
            with pytest.raises(ValueError, match="epochs is 2, but data is an iterator"):
                await training.fit(in_batches(), epochs=2)
            with pytest.raises(ValueError, match="the data has no batch"):
                await training.fit(iter([]))


@pytest.mark.parametrize("form", ["loader", "data set", "function"])
async def test_a_resumed_run_reads_what_the_other_would_have_read(form: str, device: cb.Device, tmp_path: Path) -> None:
    data: Callable[[], Any]
    settings: dict[str, Any] = {}
    if form == "loader":
        data = lambda: DataLoader(samples(), SIZE, shuffle=True)
    else:
        data, settings = FORMS[form]
    settings = {**settings, "epochs": 3}
    settings.pop("shuffle", None)
    async with trainer(device, dropping) as training:
        whole = await training.fit(data(), **settings)
        expected = await training.state_dict()
    assert whole.losses[0] != whole.losses[6]
    for at in (3, 6, 8):
        folder = tmp_path / str(at)
        async with trainer(device, dropping) as training:
            await training.fit(data(), **{**settings, "steps": at}, checkpoints=folder)
        async with trainer(device, dropping) as training:
            assert await training.resume(folder) == at
            rest = await training.fit(data(), **settings)
            found = await training.state_dict()
        assert rest.losses == whole.losses[at:]
        assert all(torch.equal(found[name], value) for name, value in expected.items())


FORKED: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "fork"}


@pytest.mark.timeout(180)
async def test_persistent_workers_change_no_order(device: cb.Device, tmp_path: Path) -> None:
    def loader(**settings: Any) -> Any:
        return DataLoader(samples(), SIZE, shuffle=True, **settings)

    persistent = {**FORKED, "persistent_workers": True}
    async with trainer(device) as training:
        whole = await training.fit(loader(), epochs=3)
    async with trainer(device) as training:
        first = await training.fit(loader(**persistent), steps=8, epochs=3, checkpoints=tmp_path)
    async with trainer(device) as training:
        await training.resume(tmp_path)
        rest = await training.fit(loader(**persistent), epochs=3)
    assert first.losses + rest.losses == whole.losses


@pytest.mark.timeout(180)
@pytest.mark.parametrize("workers", [{}, {**FORKED, "persistent_workers": True}])
async def test_validation_with_the_loader_of_training_changes_no_order(
    workers: Any, device: cb.Device, tmp_path: Path
) -> None:
    async with trainer(device) as training:
        whole = await training.fit(DataLoader(samples(), SIZE, shuffle=True), epochs=2)
    losses: list[float] = []
    for steps in (5, 12):
        loader = DataLoader(samples(), SIZE, shuffle=True, **workers)
        other = loader if workers else DataLoader(samples(), 8, generator=loader.generator)
        async with trainer(device) as training:
            if losses:
                await training.resume(tmp_path)
            found = await training.fit(
                loader, epochs=2, steps=steps, validate=other, validate_every=3, checkpoints=tmp_path
            )
        assert {one.samples for one in found.evaluations} == {ROWS}
        losses += found.losses
    assert losses == whole.losses


async def test_validation_tells_no_shared_data_set_the_number_of_its_pass(device: cb.Device) -> None:
    class Told(TensorDataset):
        told: ClassVar[list[int]] = []

        def set_epoch(self, epoch: int) -> None:
            self.told.append(epoch)

    data = Told(torch.as_tensor(X), torch.as_tensor(Y))
    loader = DataLoader(data, SIZE)
    async with trainer(device) as training:
        await training.fit(loader, epochs=2, validate=loader)
    assert data.told == [0, 1]


async def test_there_is_one_fit_at_a_time_and_a_stop_counts_while_it_goes_on(device: cb.Device) -> None:
    async with trainer(device) as training:
        training.stop()

        async def another(stats: cb.StepStats) -> None:
            with pytest.raises(RuntimeError, match="another fit of this trainer goes on"):
                await training.fit((X, Y), batch_size=SIZE)

        assert len((await training.fit((X, Y), batch_size=SIZE, on_step=another)).steps) == 6
        training.stop()
        assert len((await training.fit((X, Y), batch_size=SIZE, epochs=2)).steps) == 6


async def test_a_loader_with_a_generator_has_the_order_of_torch(device: cb.Device) -> None:
    def loader() -> Any:
        return DataLoader(samples(), SIZE, shuffle=True, generator=torch.Generator().manual_seed(3))

    async with trainer(device) as training:
        plain = loader()
        losses = [(await training.step(batch)).loss for _ in range(2) for batch in plain]
    async with trainer(device) as training:
        assert (await training.fit(loader(), epochs=2)).losses == losses


async def test_a_checkpoint_of_an_iterator_is_not_resumed_with_one(device: cb.Device, tmp_path: Path) -> None:
    async with trainer(device) as training:
        await training.fit(in_batches(), steps=2, checkpoints=tmp_path)
        await training.resume(tmp_path)
        with pytest.raises(ValueError, match="data is an iterator, and training goes on from a checkpoint"):
            await training.fit(in_batches(), steps=4)
        assert len((await training.fit((X, Y), batch_size=SIZE)).steps) == 6


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, at: int) -> Any:
        if at == 9:
            raise KeyError("no sample 9")
        return X[at], Y[at]


class Longer(DataLoader[Any]):
    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "data, settings, message",
    [
        (lambda: (X, Y), {}, "batch_size is None, but data has samples"),
        (samples, {}, "batch_size is None, but data has samples"),
        (lambda: DataLoader(samples(), 2), {"batch_size": 2}, "batch_size is 2, but data is a DataLoader, which"),
        (lambda: DataLoader(samples(), 2), {"shuffle": True}, "shuffle is True, but data is a DataLoader, which"),
        (in_batches, {"shuffle": False}, "shuffle is False, but data is a generator"),
        (lambda: "data.csv", {}, "data is a str; pass arrays of all samples"),
        (lambda: 3, {"batch_size": 2}, "data is a int; pass arrays"),
        (lambda: lambda: 3, {}, "data returned 3; it must return an iterable of batches"),
        (lambda: ["a"], {"batch_size": 2}, "batch is .* of dtype <U1"),
        (lambda: Longer(samples(), 2), {}, "more batches in a pass than the 2 of its length"),
        (lambda: (X[:0], Y[:0]), {"batch_size": 2}, "the data has no samples"),
        (lambda: DataLoader(Failing(), 4), {}, "no sample 9"),
        (lambda: [(X[:4], Y[:4])] * 2, {}, "data is a list of tuples of arrays. If they are batches, pass `lambda"),
        (lambda: [{"x": X[:4]}] * 2, {"batch_size": 2}, "data is a list of dicts of arrays"),
    ],
)
async def test_data_that_cannot_be(data: Any, settings: Any, message: str, device: cb.Device) -> None:
    async with trainer(device) as training:
        with pytest.raises((TypeError, ValueError, KeyError), match=message) as told:
            await training.fit(data(), **settings)
        if "no sample" in message and "9" in message:
            assert training.steps == 2
            assert "while batch 3 of pass 1 over the data was read" in told.value.__notes__


async def test_reading_does_not_stop_the_event_loop_and_is_bounded(device: cb.Device) -> None:
    gate, read, ahead = threading.Event(), [], []

    def slow() -> Iterator[Any]:
        for batch in in_batches():
            assert gate.wait(60)
            read.append(batch)
            yield batch

    async with trainer(device) as training:
        running = asyncio.ensure_future(
            training.fit(slow, on_step=lambda stats: ahead.append(len(read) - stats.step), epochs=2)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()  # by the loop, which is free
        await running
    assert len(read) == 12
    assert max(ahead) <= 3  # two, and the one that is being read


async def test_a_run_that_is_cancelled_or_stopped_lets_go_of_the_data(device: cb.Device) -> None:
    ended = []

    async def endless() -> AsyncIterator[Any]:
        try:
            yield X[:4], Y[:4]
            await asyncio.Event().wait()
        finally:
            ended.append("asynchronous")

    def noted() -> Iterator[Any]:
        try:
            while True:
                yield X[:4], Y[:4]
        finally:
            ended.append("plain")

    async with trainer(device) as training:
        running = asyncio.ensure_future(training.fit(endless, on_step=lambda stats: training.stop()))
        assert len((await running).steps) == 1
        assert ended == ["asynchronous"]

        stepped = asyncio.Event()
        running = asyncio.ensure_future(training.fit(noted, on_step=lambda stats: stepped.set()))
        await stepped.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended == ["asynchronous", "plain"]


@pytest.mark.timeout(180)
async def test_workers_end_with_a_run_that_is_cancelled(device: cb.Device) -> None:
    before = set(multiprocessing.active_children())
    loader = DataLoader(samples(), SIZE, shuffle=True, num_workers=1, multiprocessing_context="fork")
    async with trainer(device) as training:
        stepped = asyncio.Event()
        running = asyncio.ensure_future(training.fit(loader, epochs=1000, on_step=lambda stats: stepped.set()))
        await stepped.wait()
        assert set(multiprocessing.active_children()) - before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.timeout(180)
async def test_workers_end_with_a_run_that_fails(device: cb.Device) -> None:
    before = set(multiprocessing.active_children())
    loader = DataLoader(Failing(), 4, persistent_workers=True, **FORKED)
    async with trainer(device) as training:
        with pytest.raises(KeyError, match="no sample 9") as told:
            await training.fit(loader)
        assert told.value.__traceback__ is not None  # it holds the frames that read
        assert not set(multiprocessing.active_children()) - before
        with pytest.raises(KeyError, match="no sample 9"):  # by workers of its own
            await training.fit(loader)


class Hanging(Failing):
    def __getitem__(self, at: int) -> Any:
        if at >= 8:
            threading.Event().wait()
        return X[at], Y[at]


@pytest.mark.timeout(180)
async def test_workers_that_hang_are_ended(device: cb.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ENDING", 0.5)
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.05)
    before = set(multiprocessing.active_children())
    loader = DataLoader(Hanging(), 4, **FORKED)
    async with trainer(device) as training:
        done: list[int] = []
        stepped = asyncio.Event()

        def counted(stats: cb.StepStats) -> None:
            done.append(stats.step)
            if len(done) == 2:
                stepped.set()

        running = asyncio.ensure_future(training.fit(loader, on_step=counted))
        await stepped.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    for process in set(multiprocessing.active_children()) - before:
        process.join(60)  # the thread that reads may be slower than its bound
        assert not process.is_alive()
