"""Contexts lost at random moments under load: every ask ends in the right value or a typed error, nothing is left."""

import os
import random
import signal
from pathlib import Path

import pytest
from tests.faults.load import Load, lost_and_recovered, standby_ready

import callboard as cb

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(120)]


LOSSES = 3


def kill_host(dev: cb.Device, number: int) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    assert pid != os.getpid()
    os.kill(pid, number)


@pytest.mark.slow
@pytest.mark.few(3)
@pytest.mark.parametrize("standby", ["hot", "warm", None])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=["SIGKILL", "SIGSEGV"])
@pytest.mark.few(1)
async def test_killed_hosts(number: signal.Signals, standby: str | None) -> None:
    moments = random.Random(number * 10 + len(standby or ""))
    options = {"isolation": "process", "standby": standby, "max_restarts": None}
    async with cb.device("cpu", **options) as dev:
        generations = [dev.generation]
        async with Load(dev) as load:
            for _ in range(LOSSES):
                await load.until_answered(moments.randrange(1, 200))
                lost, recovered = await lost_and_recovered(dev, lambda: kill_host(dev, number))
                assert signal.Signals(number).name in str(lost.error)
                assert lost.generation == generations[-1]
                generations.append(recovered.generation)
            await load.until_answered(100)
        assert generations == sorted(set(generations))
        assert load.errors["ContextPoisoned"] >= LOSSES
        assert set(load.errors) <= {"ContextPoisoned", "GpuRefStale", "MailboxFull"}
        assert dev.health().restarts == LOSSES
        assert dev._port.in_flight == 0
        assert dev._actor.arenas.stats.quarantined == 0


@pytest.mark.slow
async def test_hung_hosts_are_killed_and_replaced() -> None:
    moments = random.Random(7)
    options = {"isolation": "process", "standby": "hot", "max_restarts": None, "hang_after": 4.0, "interval": 0.5}
    async with cb.device("cpu", **options) as dev:
        async with Load(dev) as load:
            for _ in range(2):
                await load.until_answered(moments.randrange(1, 200))
                lost, _ = await lost_and_recovered(dev, lambda: kill_host(dev, signal.SIGSTOP))
                assert "hung" in str(lost.error)
            await load.until_answered(100)
        assert load.errors["ContextPoisoned"] >= 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["poison_at", "exit_at", "kill_at"])
async def test_every_context_dies_again_at_an_op(fault: str) -> None:
    """Each context comes to its 400th op, so the device loses several; what was answered before is right."""
    async with cb.device(f"faulty+cpu?{fault}=400", isolation="process", standby="hot", max_restarts=None) as dev:
        async with Load(dev) as load:
            await load.until_answered(400)
        assert dev.health().restarts >= 3
        assert load.errors["ContextPoisoned"] >= 3


@pytest.mark.slow
async def test_delays_by_seed_and_a_poisoned_context(tmp_path: Path) -> None:
    once = tmp_path / "struck"
    spec = f"faulty+cpu?seed=11&delay=0.001&poison_at=200&once={once}"
    async with cb.device(spec, isolation="process", standby="warm", max_restarts=None) as dev:
        async with Load(dev, tasks=3, at_once=6) as load:
            await load.until_answered(300)
        assert once.exists()
        assert dev.health().restarts == 1


@pytest.mark.slow
async def test_the_standby_dies_again_and_again() -> None:
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        async with Load(dev) as load:
            dead: list[int] = []
            for _ in range(2):
                dead.append(await standby_ready(dev, *dead))
                os.kill(dead[-1], signal.SIGKILL)
                await load.until_answered(50)
            await standby_ready(dev, *dead)
            _, recovered = await lost_and_recovered(dev, lambda: kill_host(dev, signal.SIGKILL))
            assert recovered.standby == "hot"
            await load.until_answered(50)
        assert dev.health().restarts == 1  # the budget is spent by contexts only
