"""Trace contexts flow with the work: each op names the request that caused it, however requests interleave."""

import asyncio
import os
import signal
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.client.residents.calls import Arguments
from callboard.device.protocol.residents.steps import CLOSE, NEXT, is_closing, stream_of
from callboard.device.protocol.residents.values import decode
from callboard.events.concerns import TRACE
from callboard.events.kinds import BATCH, OP, REQUEST
from callboard.events.ring import EVENTS, Event, Ring
from callboard.events.tracing import OUT, Sampler, is_sampled
from callboard.observability import traceparent

LIMIT = 60.0


def incoming(n: int, flags: str = "01") -> str:
    """The ``traceparent`` of client ``n``."""
    return f"00-{n + 1:032x}-{n + 1:016x}-{flags}"


class Observed:
    """An observed system, whose events are kept."""

    def __init__(self, system: cb.System) -> None:
        self.system = system
        self.telemetry = cb.observe(system, "node-1")
        self._events: list[Event] = []
        self.telemetry.pump.subscribe(self._events.extend, ops=False, sampler=Sampler(1.0, 10**9))

    def events(self, kind: int) -> list[Event]:
        self.telemetry.flush()
        return [event for event in self._events if event[2] == kind]

    def request(self, parent: str | None, server: str = "s") -> str:
        """The context of the request that came with this one."""
        (found,) = [event[8] for event in self.events(REQUEST) if event[9] == parent and event[3] == server]
        return str(found)

    def ops(self) -> dict[str | None, list[str]]:
        """Tags of the ops, by trace context."""
        found = defaultdict(list)
        for event in self.events(OP):
            found[event[7]].append(event[5])
        return found


@pytest.fixture
async def seen() -> AsyncIterator[Observed]:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        yield Observed(system)


async def asked(server: Any, item: Any, parent: str | None, **options: Any) -> Any:
    """Submit a request that came with this trace context."""
    TRACE.set(parent)
    return await server.submit(item, **options)


async def all_asked(server: Any, count: int) -> list[Any]:
    """As many requests at once, each with a trace context of its own."""
    return await asyncio.gather(*(asyncio.create_task(asked(server, n, incoming(n))) for n in range(count)))


async def test_interleaved_requests_have_their_own_ops(seen: Observed) -> None:
    device = await seen.system.device("cpu", isolation="thread")
    a = device.full((2, 2), 1.0, "f32")
    both = asyncio.Barrier(2)

    async def work(items: list[int]) -> list[str | None]:
        for _ in range(3):
            await both.wait()
            if items[0]:
                device.blas.gemm(a, a)
            else:
                (device.xp.asarray(a) + 1.0).get()
        return [traceparent()]

    async with cb.DynamicBatchingServer(work, max_batch=1, max_concurrent_batches=2, name="s") as server:
        inside = await all_asked(server, 2)
    found = [seen.request(incoming(n)) for n in range(2)]
    assert inside == found
    assert [context[:36] for context in found] == [incoming(n)[:36] for n in range(2)]
    ops = seen.ops()
    assert ops[found[1]] == ["blas.gemm"] * 3
    assert ops[found[0]].count("elementwise.map") == 3
    assert "blas.gemm" not in ops[found[0]]


async def test_functions_on_threads_know_their_request(seen: Observed) -> None:
    both = threading.Barrier(2)

    def work(items: list[int]) -> list[str | None]:
        both.wait(LIMIT)
        return [traceparent()]

    async with cb.DynamicBatchingServer(work, max_batch=1, max_concurrent_batches=2, name="s") as server:
        assert await all_asked(server, 2) == [seen.request(incoming(n)) for n in range(2)]


async def test_a_batch_of_three_names_its_requests(seen: Observed) -> None:
    device = await seen.system.device("cpu", isolation="thread")

    async def work(items: list[int]) -> list[str | None]:
        device.full((2, 2), 1.0)
        return [traceparent()] * len(items)

    async with cb.DynamicBatchingServer(work, max_batch=3, max_wait=LIMIT, name="s") as server:
        inside = await all_asked(server, 3)
    (batch,) = seen.events(BATCH)
    assert sorted(batch[8]) == sorted(seen.request(incoming(n)) for n in range(3))
    assert inside == [batch[7]] * 3
    assert batch[7] not in batch[8]
    assert seen.ops()[batch[7]].count("memory.fill") == 1


# -- actors ------------------------------------------------------------------------------------------------------------


class Told(cb.Msg["Handler"]):
    """Has no answer."""

    n: int = 0


class Asked(cb.Request["Handler", str | None]):
    """What is known of the request?"""


class Handler(cb.Actor):
    def __init__(self, heard: "asyncio.Queue[str | None]", to: Any = None) -> None:
        self.heard = heard
        self.to = to

    @Told.handles
    async def told(self, message: Told) -> None:
        await asyncio.sleep(0)
        if self.to is not None:
            self.forward(self.to)
        else:
            self.heard.put_nowait(traceparent())

    @Asked.handles
    def asked(self, message: Asked) -> str | None:
        return traceparent()


async def test_messages_carry_the_context_and_others_do_not(seen: Observed) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    actor = seen.system.actor_of(cb.Props(Handler, heard))
    before = seen.system.actor_of(cb.Props(Handler, heard, actor))
    TRACE.set(incoming(1))
    inside = seen.system.actor_of(cb.Props(Handler, heard))  # made while a request is answered
    assert await actor.ask(Asked()) == incoming(1)
    before.tell(Told())
    assert await heard.get() == incoming(1)
    TRACE.set(None)
    assert await actor.ask(Asked()) is None
    assert await inside.ask(Asked()) is None
    actor.tell(Told())
    assert await heard.get() is None
    assert await asyncio.to_thread(actor.ask_blocking, Asked()) is None
    TRACE.set(incoming(2))
    assert await asyncio.to_thread(actor.ask_blocking, Asked()) == incoming(2)
    await actor.offer(Told())
    assert await heard.get() == incoming(2)


async def test_a_stashed_message_keeps_its_context(seen: Observed) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()

    class Later(cb.Actor):
        ready = False

        @Told.handles
        def told(self, message: Told) -> None:
            if message.n and not self.ready:
                self.stash()
            else:
                self.ready = True
                heard.put_nowait(traceparent())
                self.unstash_all()

    actor: Any = seen.system.actor_of(cb.Props(Later))
    TRACE.set(incoming(1))
    actor.tell(Told(n=1))
    TRACE.set(None)
    actor.tell(Told())
    assert [await heard.get(), await heard.get()] == [None, incoming(1)]


# -- resident actors ---------------------------------------------------------------------------------------------------


class Resident(cb.ResidentActor):
    def known(self) -> str | None:
        return traceparent()

    def parts(self, n: int) -> Iterator[str | None]:
        for _ in range(n):
            yield traceparent()


class Awaiting(cb.ResidentActor):
    max_concurrency = 2

    def __init__(self) -> None:
        self.both: asyncio.Event | None = None

    async def known(self) -> str | None:
        if self.both is None:
            self.both = asyncio.Event()
            await self.both.wait()
        else:
            self.both.set()
        return traceparent()


async def test_a_process_knows_for_whom_its_residents_work_also_after_a_loss(seen: Observed) -> None:
    device = await seen.system.device("cpu", isolation="process", standby=None, max_restarts=None)
    actor = device.actor_of(cb.Props(Resident), name="r")
    awaiting = device.actor_of(cb.Props(Awaiting))

    async def work(items: list[int]) -> list[Any]:
        return [await actor.call(Resident.known)]

    async def lose() -> None:
        pid = device.health().host_pid
        assert pid is not None
        events = device.events()
        os.kill(pid, signal.SIGKILL)
        while not isinstance(await anext(events), cb.Recovered):
            pass
        await events.aclose()  # type: ignore[attr-defined]

    async with cb.DynamicBatchingServer(work, max_batch=1, max_concurrent_batches=2, name="s") as server:
        assert await all_asked(server, 2) == [seen.request(incoming(n)) for n in range(2)]
        assert await actor.call(Resident.known) is None
        await lose()
        assert await asked(server, 0, incoming(7)) == seen.request(incoming(7))
    assert [seen.ops()[seen.request(incoming(n))] for n in (0, 1, 7)] == [["r.known"]] * 3
    TRACE.set(incoming(3))
    first = awaiting.call(Awaiting.known)
    TRACE.set(incoming(4))
    second = awaiting.call(Awaiting.known)
    assert [await first, await second] == [incoming(3), incoming(4)]
    assert [part async for part in actor.stream(Resident.parts, 2)] == [incoming(4)] * 2


def test_a_call_carries_a_context_only_while_telemetry_is_on() -> None:
    def body(method: Any = "known") -> bytes:
        return Arguments("a.known", method, (), {}, (), frozenset()).body

    token = TRACE.set(incoming(1))
    plain = body()
    assert decode(plain) == ["known", [], {}]
    try:
        EVENTS.ring = Ring(16)
        assert decode(body()) == ["known", [], {}, incoming(1)]
        assert is_closing(body([CLOSE, 5]))
        assert stream_of(body([NEXT, 5])) == 5
        TRACE.set(None)
        assert body() == plain
    finally:
        EVENTS.off()
        TRACE.reset(token)


# -- servers behind servers --------------------------------------------------------------------------------------------


async def test_requests_of_servers_behind_servers_nest(seen: Observed) -> None:
    inner = cb.DynamicBatchingServer(lambda items: items, max_batch=1, name="inner")

    async def through(item: int) -> int:
        return await inner.submit(item)

    async def stage(items: list[int]) -> list[tuple[int, float]]:
        return [(await inner.submit(item), 0.0) for item in items]

    cascade = cb.InferenceCascade([cb.CascadeStage(stage, 0.5), cb.CascadeStage(stage)], name="s")
    fair = cb.FairShareScheduler(through, name="fair")
    async with inner, cascade, fair:
        await asked(cascade, 1, incoming(0))
        await asked(fair, 1, incoming(1), tenant="a")
        token = TRACE.set(incoming(2))
        pipeline = cb.PipelineExecutor(through, cb.PipelineStage(lambda x: (x, traceparent()), thread=True))
        assert await pipeline.collect([1]) == [(1, incoming(2))]
        TRACE.reset(token)
    parents = {event[8]: (event[3], event[9]) for event in seen.events(REQUEST)}
    chains = []
    for context, (server, parent) in parents.items():
        if server == "inner":
            chain = [server]
            while parent in parents:
                server, parent = parents[parent]
                chain.append(server)
            chains.append((*chain, parent))
            assert context[:36] == parent[:36]
    stages = [chain[1] for chain in chains if chain[-2] == "s"]
    assert len(set(stages)) == 2  # the cascade's own
    assert sorted((chain[-2], chain[-1]) for chain in chains) == [
        ("fair", incoming(1)),
        ("inner", incoming(2)),
        *[("s", incoming(0))] * 2,
    ]


async def test_steps_of_sequences_know_all_that_are_in_them(seen: Observed) -> None:
    device = await seen.system.device("cpu", isolation="thread")

    async def step(slots: list[Any]) -> list[Any]:
        device.full((2, 2), 1.0)
        return [cb.Last(traceparent()) if len(slots) == 2 else None for _ in slots]

    async with cb.ContinuousBatchingServer(step, name="s") as server:
        await all_asked(server, 2)
    last = seen.events(BATCH)[-1]
    assert sorted(last[8]) == sorted(seen.request(incoming(n)) for n in range(2))
    assert seen.ops()[last[7]].count("memory.fill") == 1


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_flags_and_rates_decide_and_a_nested_request_does_not_decide_again() -> None:
    none, every, few = Sampler(0.0, 10**9), Sampler(1.0, 10**9), Sampler(1.0, 1)
    assert none.begin(None) == OUT == every.begin(OUT)
    assert every.begin(incoming(1, "00")) == incoming(1, "00")
    assert is_sampled(none.begin(incoming(1)))  # the client's flag decides
    begun = {every.begin(None) for _ in range(100)}
    assert len(begun) == 100
    assert all(is_sampled(each) and len(each) == 55 for each in begun)
    half = Sampler(0.5, 10**9)
    assert 300 < sum(is_sampled(half.begin(None)) for _ in range(1000)) < 700
    kept = [few.begin(incoming(1)) for _ in range(100)]
    assert few.skipped >= 90
    assert {each for each in kept if not is_sampled(each)} == {incoming(1, "00")}
    assert every.begin("cc" + incoming(1)[2:])[:36] == incoming(1)[:36]  # we speak version 00


async def test_a_request_that_is_not_sampled_writes_no_ops(seen: Observed) -> None:
    device = await seen.system.device("cpu", isolation="thread")

    async def work(items: list[int]) -> list[str | None]:
        await device.put(np.ones(2, np.float32))
        return [traceparent()]

    async with cb.DynamicBatchingServer(work, max_batch=1, name="s") as server:
        assert await asked(server, 1, incoming(1, "00")) == incoming(1, "00")
        assert await asked(server, 1, OUT) is None
    assert not seen.ops()
    assert not seen.events(REQUEST)
    assert not seen.events(BATCH)
