"""Deferred refs beyond one call: iterations of the loop, lost contexts, threads, memory that others write."""

import asyncio
import gc
import os
import signal

import numpy as np
import pytest
from tests.faults.load import BOUND, lost_and_recovered
from tests.together import together

import callboard as cb
from callboard.core.ref import DeferredRef


def kill(dev: cb.Device) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)


async def test_it_is_submitted_in_the_next_iteration_of_the_loop() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = await dev.put(np.ones(4, np.float32))
        part = x + 1.0
        whole = part * 2.0
        assert isinstance(whole, DeferredRef)
        await asyncio.sleep(0)
        assert not isinstance(whole, DeferredRef)
        assert isinstance(part, DeferredRef), "it has been a part: its own array is made when something needs it"
        assert ((await part.get()) == 2.0).all()
        assert ((await whole.get()) == 4.0).all()


async def test_draining_waits_for_it() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        found = (await dev.put(np.ones(4, np.float32))) + 1.0
        await dev.drain()
        assert found.done()


@pytest.mark.fault
async def test_a_lost_context_fails_it() -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as dev:
        x = await dev.put(np.ones(4, np.float32))
        with cb.request_key("r1"):
            found = (x + 1.0) * 2.0
        port = dev._port
        assert port.deferrals is not None
        port.lose(cb.ContextPoisoned("test"), port.generation + 1)  # in the same iteration: it has not been submitted
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.ContextPoisoned) as caught:
                await found
        assert "elementwise.map, made at" in str(caught.value.__notes__)
        assert "test_deferred.py" in str(caught.value.__notes__)
        assert "request r1" in str(caught.value.__notes__)
        assert caught.value.suspects == ()
        with pytest.raises(cb.GpuRefStale, match="context rebuilt"):
            found + 1.0
        assert found.is_stale


@pytest.mark.fault
async def test_a_killed_host_fails_what_is_in_flight_and_the_next_one_computes() -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as dev:
        x = await dev.put(np.ones(4, np.float32))
        found = x + 1.0
        _, _ = await lost_and_recovered(dev, lambda: kill(dev))
        with pytest.raises(cb.GpuRefStale, match="context rebuilt"):
            x * found
        again = dev.put(np.ones(4, np.float32))
        assert ((await (again * 3.0).get()) == 3.0).all()


async def test_a_full_mailbox_refuses_the_call() -> None:
    async with cb.device("cpu", isolation="thread", max_in_flight=4) as dev:
        x = await dev.put(np.ones(4, np.float32))
        blocked = [dev.copy(x) for _ in range(4)]
        with pytest.raises(cb.MailboxFull):
            x + 1.0
        await asyncio.gather(*blocked)
        assert ((await (x + 1.0).get()) == 2.0).all()


async def test_memory_that_others_write_is_read_at_once() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = await dev.put(np.ones(4, np.float32))
        early = x + 1.0
        view = np.from_dlpack(x)
        assert not isinstance(early, DeferredRef), "it reads what is about to be written"
        late = x + 1.0
        assert not isinstance(late, DeferredRef)
        await late
        view[:] = 7.0
        assert ((await early.get()) == 2.0).all()
        assert ((await late.get()) == 2.0).all()
        host = np.zeros(4, np.float32)
        adopted = dev.adopt(host) + 1.0
        assert not isinstance(adopted, DeferredRef)
        await adopted


class Doubler(cb.ResidentActor):
    """Writes into its argument."""

    def double(self, x: cb.GpuRef) -> None:
        np.asarray(x)[...] *= 2


async def test_a_resident_actor_may_write_its_arguments() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = await dev.put(np.ones(4, np.float32))
        actor = await dev.actor_of(cb.Props(Doubler), wait=True)
        early = x + 1.0
        await actor.call(Doubler.double, x)
        assert ((await early.get()) == 2.0).all()
        assert ((await x.get()) == 2.0).all()


class Counter(cb.ResidentActor):
    """Lends an array that its calls write."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx, self.count = ctx, np.zeros(4, np.float32)

    def lend(self) -> cb.GpuRef:
        return self.ctx.ref(self.count)

    def step(self) -> None:
        self.count += 1


async def test_a_resident_actor_may_write_what_it_has_lent() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        actor = await dev.actor_of(cb.Props(Counter), wait=True)
        lent = await actor.call(Counter.lend)
        early = lent + 10.0
        await early
        await actor.call(Counter.step)
        assert ((await early.get()) == 10.0).all()
        assert not isinstance(lent + 1.0, DeferredRef)


async def test_other_threads_call_and_drop() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        x = await dev.put(np.ones(100, np.float32))

        def work() -> None:
            for k in range(50):
                found = (x + float(k)) * 2.0
                if k % 3 == 0:
                    assert (found.get().result(BOUND) == (1 + k) * 2.0).all()

        await asyncio.to_thread(together, work, [()] * 4, BOUND)
        gc.collect()
        await dev.drain()
        deferrals = dev._port.deferrals
        assert deferrals is not None
        assert deferrals._refs() == []
        assert deferrals.called == 400
        assert deferrals.saved == deferrals.called - deferrals.submitted
