"""Kernels that poison a real context: one generation is lost, nothing else."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.faults.cuda.actors import KINDS, CupyStriker, Striker, TorchStriker, TritonStriker
from tests.faults.cuda.lab import (
    BOUND,
    armed,
    chain,
    cuda,
    error_of,
    is_right,
    needs,
    notes,
    right_or_lost,
)
from tests.faults.load import Load

import callboard as cb

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

Record = Callable[[str, object], None]


@pytest.mark.parametrize(
    "kind, standby", [*((kind, "hot") for kind in KINDS), ("illegal", "warm"), ("assertion", "warm"), ("illegal", None)]
)
async def test_a_kernel_of_a_resident_actor(kind: str, standby: str | None, record_property: Record) -> None:
    """The method has returned when its kernel fails."""
    async with cuda(standby=standby, max_restarts=1) as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        pid = await striker.with_timeout(BOUND).call(Striker.pid)
        assert pid == dev.health().host_pid
        await armed(dev)
        kept = dev.put(np.ones(4, np.float32))
        await is_right(chain(dev, 1), 1)
        before, events = dev.generation, dev.events()
        strike = striker.call(Striker.strike, kind)
        behind = chain(dev, 2)
        async with asyncio.timeout(BOUND):
            lost = await anext(events)
        early = chain(dev, 3)
        async with asyncio.timeout(BOUND):
            recovered = await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        assert isinstance(lost, cb.Lost)
        assert isinstance(recovered, cb.Recovered)
        assert isinstance(lost.error, cb.ContextPoisoned)
        assert re.search(KINDS[kind], str(lost.error)), lost.error
        assert (lost.generation, recovered.generation) == (before, dev.generation)
        assert recovered.standby == (standby or "cold")
        await is_right(early, 3)
        error = await error_of(strike)
        assert type(error) is cb.ContextPoisoned
        assert re.search(KINDS[kind], str(error)), error
        assert error.generation == before
        assert "striker.strike" in [suspect.op for suspect in error.suspects]
        await right_or_lost(behind, 2)
        with pytest.raises(cb.GpuRefStale, match="context rebuilt"):
            kept.get()
        assert await striker.with_timeout(BOUND).call(Striker.pid) not in (pid, 0)
        assert striker.restarts == 0
        assert dev.health().restarts == 1
        took = f"{recovered.standby} standby ready {recovered.seconds * 1e3:.1f} ms after the report"
        record_property("measured", f"cuda, {kind}: {took}")


@pytest.mark.parametrize("kind", ["illegal", "assertion"])
async def test_the_exception_of_the_actor_is_told(kind: str) -> None:
    async with cuda(standby="hot") as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        await striker.with_timeout(BOUND).call(Striker.pid)
        await armed(dev)
        error = await error_of(striker.call(Striker.strike_and_raise, kind))
        assert type(error) is cb.ContextPoisoned
        assert re.search(KINDS[kind], str(error)), error
        assert "found when resident actor striker raised:" in notes(error)
        assert "RuntimeError: the simulation failed: cuStreamSynchronize" in notes(error)
        await is_right(chain(dev, 4), 4)
        assert await striker.with_timeout(BOUND).call(Striker.pid) == dev.health().host_pid
        assert (dev.health().restarts, striker.restarts) == (1, 0)


async def test_each_loss_costs_one_generation_and_not_the_actor() -> None:
    """The actor may not fail once (its budget is 0), and its context fails four times."""
    async with cuda(standby="hot") as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        generations = [dev.generation]
        for number, kind in enumerate(("illegal", "assertion", "trap", "illegal")):
            await striker.with_timeout(BOUND).call(Striker.pid)
            await armed(dev)
            method = Striker.strike_and_raise if number % 2 else Striker.strike
            events = dev.events()
            error = await error_of(striker.call(method, kind))
            assert isinstance(error, cb.ContextPoisoned)
            await is_right(chain(dev, number), number)
            assert isinstance(await anext(events), cb.Lost)
            recovered = await anext(events)
            await events.aclose()  # type: ignore[attr-defined]
            assert isinstance(recovered, cb.Recovered)
            assert recovered.standby == "hot"
            generations.append(dev.generation)
        assert generations == sorted(set(generations))
        assert dev.health().restarts == 4
        assert await striker.with_timeout(BOUND).call(Striker.pid) == dev.health().host_pid
        assert (striker.restarts, striker.is_stopped) == (0, False)


async def test_poisoned_under_load() -> None:
    """Every ask ends in its own value or a typed error, whatever is on the streams when the context dies."""
    async with cuda(standby="hot") as dev:
        striker = dev.actor_of(cb.Props(Striker), name="striker")
        async with Load(dev) as load:
            for moment, kind in ((30, "illegal"), (170, "trap"), (5, "assertion")):
                await striker.with_timeout(BOUND).call(Striker.pid)
                await armed(dev)
                await load.until_answered(moment)
                before = dev.generation
                assert isinstance(await error_of(striker.call(Striker.strike, kind)), cb.ContextPoisoned)
                assert dev.generation > before
            await load.until_answered(100)
        assert set(load.errors) <= {"ContextPoisoned", "GpuRefStale", "MailboxFull"}
        assert dev.health().restarts == 3
        assert dev._port.in_flight == 0
        actor = dev._actor
        lost = [host.reaped for host in actor.fleet.hosts if host not in (actor.host, actor._standby.host)]
        await asyncio.wait_for(asyncio.gather(*map(asyncio.shield, lost)), 30)
        await dev.drain()
        assert actor.arenas.stats.quarantined == 0


@pytest.mark.parametrize("standby", ["hot", "warm"])
async def test_an_assertion_inside_torch(standby: str) -> None:
    needs("torch")
    async with cuda(standby=standby) as dev:
        actor = dev.actor_of(cb.Props(TorchStriker), name="torch")
        patient = actor.with_timeout(BOUND)
        if not await patient.call(TorchStriker.usable):
            pytest.skip("torch is a build without CUDA")
        for number in (1, 2):
            assert await patient.call(TorchStriker.pick, 3) == 3.0
            await armed(dev)
            before = dev.generation
            error = await error_of(actor.call(TorchStriker.pick, 1 << 20))
            early = chain(dev, number)
            assert type(error) is cb.ContextPoisoned
            assert "CUDA_ERROR_ASSERT" in str(error)
            assert "device-side assert triggered" in notes(error)
            await is_right(early, number)
            assert dev.generation > before
            assert await patient.call(TorchStriker.pick, 2) == 2.0
            assert (dev.health().restarts, actor.restarts) == (number, 0)


@pytest.mark.parametrize("package", ["cupy", "triton"])
async def test_an_illegal_address_inside_a_kernel_of_a_package(package: str) -> None:
    needs(package)
    striker: type[CupyStriker | TritonStriker] = CupyStriker if package == "cupy" else TritonStriker
    async with cuda(standby="hot") as dev:
        actor: cb.ResidentRef[Any] = dev.actor_of(cb.Props(striker), name=package)
        patient = actor.with_timeout(BOUND)
        for number in (1, 2):
            assert await patient.call(striker.put, 0) == 7.0
            await armed(dev)
            error = await error_of(actor.call(striker.put, 1 << 44))
            early = chain(dev, number)
            assert type(error) is cb.ContextPoisoned
            assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(error)
            assert re.search("cudaErrorIllegalAddress|illegal memory access", notes(error))
            await is_right(early, number)
            assert (dev.health().restarts, actor.restarts) == (number, 0)
