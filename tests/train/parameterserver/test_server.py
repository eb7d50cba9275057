"""``AsyncParameterServer``: the numbers of ``torch.optim``, whoever waits, and whatever is lost on the way."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.testing.faults import open_faulty
from callboard.train.errors import NotFinite, StaleGradient, TrainerClosed
from callboard.train.kinds import optimizer_of

torch = pytest.importorskip("torch")

SGD = cb.OptimizerKind.Sgd(lr=0.1)
MOMENTUM = cb.OptimizerKind.Sgd(lr=0.05, momentum=0.9, weight_decay=0.01)
ADAM = cb.OptimizerKind.AdamW(lr=0.01)
BSP, SSP, ASP = cb.Consistency.Bsp(), cb.Consistency.Ssp(slack=2), cb.Consistency.Asp()
DRAW = np.random.default_rng(0)
FIRST: dict[str, Any] = {
    "w": DRAW.standard_normal((7, 5)).astype("f4"),
    "b": DRAW.standard_normal(5).astype("f4"),
    "c": np.float32(1.5),
}


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def server(devices: Any, weights: Any = FIRST, **settings: Any) -> cb.AsyncParameterServer:
    return cb.AsyncParameterServer(weights, devices=devices, **{"optimizer": SGD, **settings})


def gradients(count: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(1)
    return [
        {name: draw.standard_normal(np.shape(one)).astype("f4") for name, one in FIRST.items()} for _ in range(count)
    ]


def plain(several: list[dict[str, Any]], optimizer: Any, schedule: Any = None) -> dict[str, Any]:
    """What torch gives for these gradients."""
    weights = {name: torch.nn.Parameter(torch.tensor(one)) for name, one in FIRST.items()}
    rule = optimizer_of(optimizer, list(weights.values()))
    scheduler = None if schedule is None else schedule(rule)
    for one in several:
        for name, weight in weights.items():
            weight.grad = torch.as_tensor(one[name])
        rule.step()
        if scheduler is not None:
            scheduler.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


async def pushed(training: cb.AsyncParameterServer, several: list[dict[str, Any]], start: int = 0) -> dict[str, Any]:
    """Push and pull in turns, as one worker does."""
    for seq, one in enumerate(several, start):
        receipt = await training.push("a", seq, one, training.version)
        assert receipt.version == seq + 1
    return await weights_of(training)


async def weights_of(training: cb.AsyncParameterServer, worker: str = "a") -> dict[str, Any]:
    found = await training.pull(worker)
    assert found is not None
    return dict(found.arrays)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run."""
    while not condition():  # noqa: ASYNC110  # nothing else tells that a call waits
        await asyncio.sleep(0)


def equal(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {*found} == {*expected} and all(np.array_equal(found[name], one) for name, one in expected.items())


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM, lambda p: torch.optim.RMSprop(p, 0.01)])
async def test_one_worker_is_torch_bit_for_bit(pair: list[cb.Device], optimizer: Any, shards: int) -> None:
    several = gradients(100)
    async with server(pair[:shards], optimizer=optimizer) as training:
        found = await pushed(training, several)
    assert equal(found, plain(several, optimizer))


def one_cycle(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_scheduler_of_torch_follows_the_updates(pair: list[cb.Device], shards: int, tmp_path: Path) -> None:
    several = gradients(20)
    async with server(pair[:shards], optimizer=MOMENTUM, schedule=one_cycle) as training:
        await pushed(training, several[:8])
        await training.save(tmp_path)
    async with server(pair[:shards], optimizer=MOMENTUM, schedule=one_cycle) as training:
        await training.resume(tmp_path)
        found = await pushed(training, several[8:], 8)
    assert equal(found, plain(several, MOMENTUM, one_cycle))


async def test_a_schedule_by_the_number_of_updates(pair: list[cb.Device]) -> None:
    several = gradients(6)
    async with server(pair, optimizer=MOMENTUM, schedule=lambda updates: 1 / (1 + updates)) as training:
        found = await pushed(training, several)
        with pytest.raises(TypeError, match=r"schedule is ReduceLROnPlateau.*follows the evaluations of fit"):
            server(pair, schedule=cb.ReduceLROnPlateau())
    assert equal(
        found, plain(several, MOMENTUM, lambda rule: torch.optim.lr_scheduler.LambdaLR(rule, lambda n: 1 / (1 + n)))
    )


async def test_a_scheduler_that_has_ended_fails_the_push(pair: list[cb.Device]) -> None:
    several = gradients(3)
    async with server(
        pair, schedule=lambda rule: torch.optim.lr_scheduler.OneCycleLR(rule, 0.1, total_steps=1, cycle_momentum=False)
    ) as training:
        before = await pushed(training, several[:2])
        with pytest.raises(ValueError, match="number of total steps is 1"):
            await training.push("a", 2, several[2], 2)
        assert training.version == 2
        assert equal(await weights_of(training), before)


async def test_pulls_of_one_version_share_its_arrays_and_later_ones_change_none(pair: list[cb.Device]) -> None:
    (one,) = gradients(1)
    async with server(pair) as training:
        first = await training.pull("a")
        same = await training.pull("b")
        assert first is not None
        assert first is same
        assert equal(dict(first.arrays), FIRST)
        assert await training.pull("a", newer_than=0) is None
        await training.push("a", 0, one, 0)
        newer = await training.pull("a", newer_than=0)
        assert newer is not None
        assert newer.version == 1
        assert equal(dict(first.arrays), FIRST)
        with pytest.raises(ValueError, match="read-only"):
            first.arrays["w"][0] = 0


async def test_a_retried_push_is_counted_once(pair: list[cb.Device]) -> None:
    one, other = gradients(2)
    async with server(pair[:1], consistency=ASP) as training:
        cancelled = asyncio.ensure_future(training.push("a", 0, one, 0))
        await asyncio.sleep(0)
        cancelled.cancel()
        again = await asyncio.gather(*(training.push("a", 0, one, 0) for _ in range(3)))
        late = await training.push("a", 0, other, 0)
        assert {receipt.version for receipt in [*again, late]} == {1}
        assert (await training.push("b", 0, other, 0)).version == 2
        assert (training.stats().pushes, training.stats().repeated) == (2, 4)


async def test_bsp_makes_one_update_of_all_workers(pair: list[cb.Device]) -> None:
    one, other = gradients(2)
    async with server(pair, consistency=BSP, workers=["a", "b"]) as training:
        first = asyncio.ensure_future(training.push("a", 0, one, 0))
        await until(lambda: training.stats().stragglers == ["b"])
        second = await training.push("b", 0, other, 0)
        assert ((await first).version, second.version) == (1, 1)
        found = await weights_of(training)
    both = {name: (value + other[name]) / 2 for name, value in one.items()}
    assert equal(found, plain([both], SGD))


async def test_ssp_has_the_fast_worker_wait(pair: list[cb.Device]) -> None:
    several = gradients(4)
    async with server(pair[:1], consistency=SSP, workers=["slow"]) as training:
        await training.push("a", 0, several[0], 0)
        second = asyncio.ensure_future(training.push("a", 1, several[1], 1))
        await until(lambda: training.stats().workers["a"].clock == 2)
        pull = asyncio.ensure_future(training.pull("a"))
        assert (await training.push("slow", 0, several[2], 0)).staleness == 2
        assert (await second).version == 2
        pulled = await pull
        assert pulled is not None
        assert pulled.version == 3
        stats = training.stats()
        assert (stats.workers["a"].behind, stats.workers["slow"].behind) == (0, 1)
        assert (stats.staleness, stats.average_staleness) == ({0: 2, 2: 1}, 2 / 3)


async def test_nobody_waits_for_a_dead_worker(pair: list[cb.Device]) -> None:
    one, other = gradients(2)
    async with server(pair[:1], consistency=BSP, workers=["a", "dead"], lease=0.05) as training:
        assert (await training.push("a", 0, one, 0)).version == 1  # ends when the lease has
        assert not training.stats().workers["dead"].live
        returned = asyncio.ensure_future(training.push("dead", 0, one, 0))
        await training.push("a", 1, other, 1)
        assert (await returned).version == training.version
    async with server(pair[:1], consistency=BSP, workers=["a", "gone"]) as training:
        push = asyncio.ensure_future(training.push("a", 0, one, 0))
        await asyncio.sleep(0)
        await training.leave("gone")
        assert (await push).version == 1


async def test_staleness_refuses_or_scales(pair: list[cb.Device]) -> None:
    one = {"w": np.ones(2)}
    zero = {"w": np.zeros(2)}
    async with server(pair[:1], zero, consistency=ASP, max_staleness=1) as training:
        await training.push("a", 0, one, 0)
        await training.push("a", 1, one, 0)
        with pytest.raises(StaleGradient, match="'a': its weights have had 2 updates since, max_staleness is 1"):
            await training.push("a", 2, one, 0)
        assert (await training.push("a", 2, one, 2)).version == 3  # a refused push is not counted
    async with server(pair[:1], zero, consistency=cb.Consistency.Asp(scaled=True)) as training:
        await training.push("a", 0, one, 0)
        await training.push("b", 0, one, 0)
        assert np.array_equal((await weights_of(training))["w"], np.full(2, -0.1 - 0.05))


async def test_a_window_makes_one_update_of_several_pushes(pair: list[cb.Device], tmp_path: Path) -> None:
    async with server(pair[:1], {"w": np.zeros(1)}, window=2, consistency=ASP) as training:
        assert (await training.push("a", 0, {"w": np.ones(1)}, 0)).version == 0
        assert (await training.push("a", 1, {"w": np.full(1, 3.0)}, 0)).version == 1
        assert (await weights_of(training))["w"] == pytest.approx(-0.2)
        await training.push("a", 2, {"w": np.ones(1)}, 0)
        await training.save(tmp_path)
        assert training.version == 2


@pytest.mark.parametrize("optimizer", [SGD, MOMENTUM])
async def test_sparse_rows_are_whole_gradients_with_zeros(pair: list[cb.Device], optimizer: Any) -> None:
    whole = gradients(3)
    for at, one in enumerate(whole):
        one["w"][[row for row in range(7) if row not in (at, 5)]] = 0
    sparse = [
        {**one, "w": cb.SparseRows([5, at, 5], np.stack([one["w"][5], one["w"][at], np.zeros(5, "f4")]))}
        for at, one in enumerate(whole)
    ]
    async with server(pair, optimizer=optimizer) as training:
        found = await pushed(training, sparse)
        for _ in range(2):  # from the snapshot of the version, and without one
            some = await training.pull("a", rows={"w": [6, 0, 6]})
            assert some is not None
            assert np.array_equal(some.arrays["w"], found["w"][[6, 0, 6]])
            assert np.array_equal(some.arrays["b"], found["b"])
            await training.push("a", training.version, {"c": np.float32(0)}, 0)
            found["w"] = found["w"] if optimizer is SGD else (await weights_of(training))["w"]
    if optimizer is SGD:
        assert equal({**found, "c": 0}, {**plain(whole, optimizer), "c": 0})


async def test_compressed_gradients_lose_nothing_in_the_long_run(pair: list[cb.Device]) -> None:
    gradient = np.linspace(-1, 2, 40).astype("f4")
    async with server(pair, {"w": np.zeros(40, "f4")}) as training:
        for settings in ({"top_k": 0.1}, {"int8": True}, {"top_k": 0.5, "int8": True}):
            compressor = cb.GradientCompressor(**settings)
            before = (await weights_of(training))["w"]
            for _ in range(60):
                sent = compressor.compress({"w": gradient})
                assert sent["w"].nbytes < gradient.nbytes
                await training.push("a", training.version, sent, training.version)
            moved = (await weights_of(training))["w"] - before
            assert np.abs(moved + 0.1 * 60 * gradient).max() < 1.6
    with pytest.raises(ValueError, match="top_k is 0"):
        cb.GradientCompressor(top_k=0)
    with pytest.raises(ValueError, match=r"gradients\['w'\] is not finite"):
        cb.GradientCompressor().compress({"w": gradient + np.inf})


@pytest.mark.parametrize(
    "given, kind, message",
    [
        (
            {"w": np.zeros((7, 4), "f4")},
            cb.ShapeError,
            r"gradients\['w'\]: shape \[7, 4\] does not fit; the weight needs",
        ),
        (
            {"w": np.zeros((7, 5))},
            cb.ShapeError,
            r"gradients\['w'\]: dtype float64 does not fit; the weight is float32",
        ),
        ({"b": np.full(5, np.nan, "f4")}, NotFinite, r"gradients\['b'\]: item 0 is nan"),
        ({"x": np.zeros(5, "f4")}, cb.ShapeError, r"gradients\['x'\]: there is no such weight"),
        ({"w": cb.SparseRows([7], np.zeros((1, 5), "f4"))}, cb.ShapeError, r"gradients\['w'\].rows: row 7 is outside"),
        ({"w": cb.SparseRows([0.5], np.zeros((1, 5), "f4"))}, cb.ShapeError, r"rows: float64\[1\] does not fit"),
        ({"w": cb.SparseRows([1], np.zeros((2, 5), "f4"))}, cb.ShapeError, r"gradients\['w'\].values: shape \[2, 5\]"),
        ({"c": cb.SparseRows([0], np.zeros(1, "f4"))}, cb.ShapeError, "a single number and has no rows"),
        ({}, TypeError, "gradients is {}; pass a dict"),
    ],
)
async def test_gradients_that_cannot_be(pair: list[cb.Device], given: Any, kind: type[Exception], message: str) -> None:
    async with server(pair[:1]) as training:
        with pytest.raises(kind, match=message):
            await training.push("a", 0, given, 0)
        with pytest.raises(ValueError, match="version is 1; pass that of the weights"):
            await training.push("a", 0, gradients(1)[0], 1)
        large = {"b": np.full(5, 3e38, "f4")}
        assert (await training.push("a", 0, large, 0)).version == 1  # its square overflows
        assert training.stats().refused == 2


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"weights": []}, r"weights is \[\]; pass a dict"),
        ({"weights": {"w": np.zeros(2, "i4")}}, r"weights\['w'\] is of dtype int32"),
        ({"weights": {"w": np.zeros(0)}}, r"weights\['w'\] has no items"),
        ({"optimizer": "adamw"}, "optimizer is 'adamw'; pass one of cb.OptimizerKind"),
        ({"consistency": "bsp"}, "consistency is 'bsp'; pass one of cb.Consistency"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"workers": "ab"}, "workers is 'ab'; pass a list"),
        ({"window": 0}, "window is 0"),
        ({"lease": 0}, "lease is 0"),
        ({"snapshot_every": 0}, "snapshot_every is 0"),
        ({"devices": []}, "devices is empty"),
    ],
)
async def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        server(**{"devices": ["cpu"], **settings})
    with pytest.raises(ValueError, match="slack is 0"):
        cb.Consistency.Ssp(slack=0)


class Failing(torch.optim.SGD):  # type: ignore[misc, name-defined]
    """Fails in its second step, in the shard that has ``b``, after an update that must not count."""

    steps = 0

    def step(self, closure: Any = None) -> None:
        super().step()
        Failing.steps += 1
        if Failing.steps == 4:
            raise ArithmeticError("no second step")


async def test_a_failing_optimizer_leaves_the_weights(pair: list[cb.Device]) -> None:
    one, other = gradients(2)
    async with server(pair, optimizer=lambda p: Failing(p, 0.1)) as training:
        await training.push("a", 0, one, 0)
        with pytest.raises(ArithmeticError, match="no second step"):
            await training.push("a", 1, other, 1)
        assert training.version == 1
        assert equal(await weights_of(training), plain([one], SGD))
        await training.push("a", 1, other, 1)
        assert equal(await weights_of(training), plain([one, other], SGD))


async def test_a_checkpoint_has_everything(pair: list[cb.Device], tmp_path: Path) -> None:
    several = gradients(10)
    async with server(pair, optimizer=ADAM) as training:
        await pushed(training, several[:6])
        await training.save(tmp_path)
    async with server(pair, optimizer=ADAM) as training:
        assert await training.resume(tmp_path) == 6
        assert (await training.push("a", 5, several[5], 5)).version == 6  # was counted before
        found = await pushed(training, several[6:], 6)
    assert equal(found, plain(several, ADAM))
    async with server(pair[:1], optimizer=ADAM) as training:
        with pytest.raises(cb.ShapeError, match="has 2 shards, the server 1"):
            await training.resume(tmp_path)
    async with server(pair[:1], {"w": np.zeros(3)}) as training:
        with pytest.raises(cb.ShapeError, match="of other weights; they differ in b, c, w"):
            await training.resume(tmp_path)


async def test_closing_ends_the_calls_that_wait(pair: list[cb.Device]) -> None:
    training = server(pair, consistency=BSP, workers=["a", "b"])
    with pytest.raises(TrainerClosed, match="async with"):
        await training.pull("a")
    async with training:
        push = asyncio.ensure_future(training.push("a", 0, gradients(1)[0], 0))
        await until(lambda: training.stats().stragglers == ["b"])
    with pytest.raises(TrainerClosed):
        await push


@pytest.mark.parametrize("at", [3, 7, 8])
async def test_a_device_that_is_lost_for_good_changes_no_number(pair: list[cb.Device], at: int) -> None:
    several = gradients(9)
    async with open_faulty("context_poisoned", isolation="thread") as device:
        async with server([device, pair[0]], optimizer=ADAM, snapshot_every=3) as training:
            for seq, one in enumerate(several):
                push = asyncio.ensure_future(training.push("a", seq, one, seq))
                await asyncio.sleep(0)
                if seq == at:
                    with pytest.raises(cb.AccelError):
                        await device.blas.gemm(device.put(np.eye(2)), device.put(np.eye(2))).get()
                assert (await push).version == seq + 1
            found = await weights_of(training)
            assert training.stats().losses == 1
    assert equal(found, plain(several, ADAM))


async def test_a_shard_moves_when_its_device_has_stopped_for_good(pair: list[cb.Device]) -> None:
    several = gradients(4)
    async with server(pair, optimizer=ADAM) as training:
        await pushed(training, several[:2])
        await pair[0].close()
        found = await pushed(training, several[2:], 2)
        assert training.stats().losses == 1
        await pair[1].close()
        with pytest.raises(cb.DeviceStopped):
            await training.push("a", 4, several[0], 4)
    assert equal(found, plain(several, ADAM))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_lost_device_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "1")
    several = gradients(9)
    async with cb.device("cpu:0", isolation="process", standby=None) as device:
        async with server([device], optimizer=ADAM, snapshot_every=3) as training:
            for seq, one in enumerate(several):
                push = asyncio.ensure_future(training.push("a", seq, one, seq))
                await asyncio.sleep(0)
                if seq == 4:  # one update after the snapshot
                    victim = device.health().host_pid
                    assert victim is not None
                    os.kill(victim, signal.SIGKILL)
                assert (await push).version == seq + 1
            found = await weights_of(training)
            assert training.stats().losses == 1
    assert equal(found, plain(several, ADAM))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [["a"], ["a", "b", "c"]], ids=["one worker", "bsp"])
async def test_devices_killed_at_random_change_no_number(pair: list[cb.Device], workers: list[str]) -> None:
    draw, consistency = random.Random(len(workers)), SSP if len(workers) == 1 else BSP
    several = gradients(30 * len(workers))
    kills = {seq: (draw.choice([[0], [1], [0, 1]]), draw.randrange(60)) for seq in draw.sample(range(30), 6)}

    async def curve(devices: list[cb.Device], kills: dict[int, tuple[list[int], int]]) -> list[dict[str, Any]]:
        found = []
        settings: dict[str, Any] = {"optimizer": ADAM, "consistency": consistency, "snapshot_every": 4}
        async with server(devices, workers=workers, **settings) as training:
            for seq in range(30):
                own = several[seq * len(workers) :]
                pushes = [
                    asyncio.ensure_future(training.push(worker, seq, one, training.version))
                    for worker, one in zip(workers, own, strict=False)
                ]
                victims, iterations = kills.get(seq, ([], 0))
                for _ in range(iterations):
                    await asyncio.sleep(0)
                for victim in victims:
                    pid = devices[victim].health().host_pid
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                await asyncio.gather(*pushes)
                found.append(await weights_of(training))
            assert training.stats().losses >= bool(kills)
        return found

    calm = await curve(pair, {})
    async with cb.System() as system:
        hosts = [
            await system.device(f"cpu:{rank}", isolation="process", standby=None, max_restarts=None)
            for rank in range(2)
        ]
        disturbed = await curve(hosts, kills)
    assert all(equal(one, other) for one, other in zip(calm, disturbed, strict=True))
