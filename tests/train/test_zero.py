"""``shard="zero1"``: the bits of replicas that have the whole optimizer's state, with a share of it on each."""

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.train.test_data_parallel import killing, normed, numbers
from tests.train.training_lab import batches, dropping, mlp

import callboard as cb
from callboard.train.replicas import buckets
from callboard.train.replicas.exchange import Exchange
from callboard.train.replicas.replica import Replica
from callboard.train.states import unpack

torch = pytest.importorskip("torch")

ADAM = cb.OptimizerKind.AdamW(lr=0.01)


@pytest.fixture
async def devices(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 600)  # several buckets, one of them of several parameters
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(3)]


def trainer(devices: Any, shard: str | None = "zero1", model: Any = mlp, **settings: Any) -> cb.DataParallelTrainer:
    given = {"optimizer": ADAM, "loss": cb.LossKind.CrossEntropy(), "gradient_clip": 0.5, **settings}
    return cb.DataParallelTrainer(model, devices=devices, shard=shard, **given)


def groups(parameters: list[Any]) -> Any:
    flat = [one for one in parameters if one.ndim < 2]
    others = [one for one in parameters if one.ndim > 1]
    return torch.optim.AdamW([{"params": flat, "weight_decay": 0.0}, {"params": others}], 0.01)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


Act = Callable[[cb.DataParallelTrainer, int], Any]


async def both(devices: Any, act: Act | None = None, count: int = 6, **settings: Any) -> None:
    """The numbers and weights with whole and with parted states of the optimizer are the same."""
    found = []
    for shard in (None, "zero1"):
        async with trainer(devices, shard, **settings) as training:
            steps = []
            for number, batch in enumerate(batches(count, 11)):
                if act is not None:
                    await act(training, number)
                steps.append(await training.step(batch))
            found.append((numbers(steps), await training.state_dict()))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize(
    "optimizer",
    [
        ADAM,
        cb.OptimizerKind.Sgd(lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda parameters: torch.optim.RMSprop(parameters, 0.01),
        lambda parameters: torch.optim.Adafactor(parameters, 0.01),
        groups,
    ],
)
async def test_the_bits_are_those_of_whole_states(devices: list[cb.Device], optimizer: Any) -> None:
    await both(devices, optimizer=optimizer, schedule=lambda updates: 1 / (1 + updates))


async def test_more_devices_than_parameters_running_means_and_skipped_steps(devices: list[cb.Device]) -> None:
    async def skipped(training: cb.DataParallelTrainer, number: int) -> None:
        if number == 2:
            x, y = batches(1, 6)[0]
            assert (await training.step((x * float("inf"), y))).skipped

    await both(devices, skipped, model=normed)
    await both(devices, model=lambda: torch.nn.Linear(6, 3, bias=False))


async def test_each_has_its_share(devices: list[cb.Device]) -> None:
    async with trainer(devices) as training:
        await training.step(batches(1, 6)[0])
        members: Any = training._training()
        states = [unpack(await replica.call(Replica.state, True, False)) for replica in members.actors]
    assert [model for model, _, _ in states] == [{}, {}, {}]
    shares = [sorted(optimizer["state"]) for _, optimizer, _ in states]
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3]
    assert sum(map(bool, shares)) > 1


async def test_devices_change(devices: list[cb.Device]) -> None:
    async def change(training: cb.DataParallelTrainer, number: int) -> None:
        if number in (1, 3, 5):
            await training.set_replicas(devices[: {1: 2, 3: 1, 5: 3}[number]])

    await both(devices, change)


async def test_checkpoints_fit_any_number_of_devices(devices: list[cb.Device], tmp_path: Path) -> None:
    data = batches(5, 7)
    async with trainer(devices[:2]) as training:
        for batch in data[:3]:
            await training.step(batch)
        place = await training.save(tmp_path)
    found = {}
    for count in (1, 2, 3):
        for shard in (None, "zero1"):
            async with trainer(devices[:count], shard) as training:
                assert await training.resume(place) == 3
                for batch in data[3:]:
                    await training.step(batch)
                found[count, shard] = await training.state_dict()
        assert same(found[count, None], found[count, "zero1"])


async def test_an_update_that_fails_on_one_changes_nothing(
    devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_out = Exchange.hand_out
    failures: list[bool] = []

    def once(exchange: Any, given: Any) -> None:
        if exchange.rank == 1 and not failures:
            failures.append(True)
            raise RuntimeError("midway")
        hand_out(exchange, given)

    async def broken(training: cb.DataParallelTrainer, number: int) -> None:
        if number == 3 and training._shard is not None:
            monkeypatch.setattr(Exchange, "hand_out", once)
            with pytest.raises(RuntimeError, match="midway"):
                await training.step(batches(1, 5)[0])

    await both(devices, broken, snapshot_every=2)
    assert failures


@pytest.mark.parametrize(
    "shard, message", [("fsdp2", "use 'zero1' for .*TensorParallelTrainer"), ("zero3", "'zero3'; use 'zero1', or None")]
)
def test_what_is_refused(shard: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(["cpu"], shard)


class Prodigy(torch.optim.SGD):
    """Named as one whose step size depends on all parameters."""


async def test_optimizers_that_need_all_parameters_are_refused(devices: list[cb.Device]) -> None:
    with pytest.raises(TypeError, match="shard='zero1': the update of Prodigy depends on all parameters"):
        async with trainer(devices, optimizer=lambda parameters: Prodigy(parameters)):
            pass


@pytest.mark.timeout(180)
async def test_a_lost_device_changes_no_number(devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(6, 7)
    monkeypatch.undo()  # buckets as in the other processes
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with trainer(devices[:2]) as training:
        calm = await killing(training, data, {})
        expected = await training.state_dict()
    async with cb.System() as system:
        hosts = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(2)]
        async with trainer(hosts, snapshot_every=2) as training:
            disturbed = await killing(training, data, {3: [1]})
            found = await training.state_dict()
    assert numbers(disturbed) == numbers(calm)
    assert hosts[1].health().ordinal > 1  # else only the snapshot behind a step met it
    assert same(expected, found)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_devices_killed_at_random_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    data, draw = batches(24, 7), random.Random(5)
    kills = {number: draw.choice([[0], [1], [0, 1]]) for number in range(3, 24, 5)}
    async with cb.System() as system:  # a device that stopped for good would change the dropout of the others
        hosts = [await system.device(f"cpu:{rank}", isolation="process", max_restarts=None) for rank in range(2)]
        async with trainer(hosts, model=dropping) as training:
            calm = await killing(training, data, {})
            expected = await training.state_dict()
        async with trainer(hosts, model=dropping, snapshot_every=4) as training:
            disturbed = await killing(training, data, kills)
            found = await training.state_dict()
    assert numbers(disturbed) == numbers(calm)
    assert same(expected, found)
