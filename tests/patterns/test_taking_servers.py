"""Every kind of server takes an item as it is at the call: its caller may use the buffer again at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.patterns.requests.server import RequestServer
from callboard.serve.calls import CallServer

LIMIT = 30.0
GIVEN, LATER = [1, 2], [7, 7]


class Held:
    """The function under a server: it says that it has begun, and reads its item when the test lets it go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.seen: list[list[int]] = []
        self._loop = asyncio.get_running_loop()
        self._go, self._go_thread = asyncio.Event(), threading.Event()

    def let_go(self) -> None:
        self._go.set()
        self._go_thread.set()

    async def read(self, item: Any) -> None:
        self.begun.set()
        await self._go.wait()
        self.note(item)

    def read_on_a_thread(self, item: Any) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self._go_thread.wait(LIMIT)
        self.note(item)

    def note(self, item: Any) -> None:
        self.seen.append(np.ravel(np.asarray(item)).astype(int).tolist()[:2])


def of_batches(held: Held) -> Any:
    async def function(items: list[Any], *_: Any) -> list[Any]:
        await held.read(items[0])
        return [0 for _ in items]

    return function


def of_one(held: Held) -> Any:
    async def function(item: Any) -> int:
        await held.read(item)
        return 0

    return function


def in_parts(held: Held) -> Any:
    async def function(item: Any) -> Any:
        await held.read(item)
        yield 0

    return function


def on_threads(held: Held) -> Any:
    def function(item: Any) -> int:
        held.read_on_a_thread(item)
        return 0

    return function


def batches_on_threads(held: Held) -> Any:
    def function(items: list[Any]) -> list[int]:
        held.read_on_a_thread(items[0])
        return [0 for _ in items]

    return function


def of_steps(held: Held) -> Any:
    async def step(slots: list[Any]) -> list[Any]:
        await held.read(slots[0].item)
        return [cb.Last(0) for _ in slots]

    return step


def of_stages(held: Held) -> Any:
    async def stage(items: list[Any]) -> list[Any]:
        await held.read(items[0])
        return [(0, 1.0) for _ in items]

    return stage


def first_stage(items: list[Any]) -> list[Any]:
    return [(0, 0.0) for _ in items]


def of_experts(held: Held) -> Any:
    async def gate(tokens: Any) -> Any:
        await held.read(tokens)
        return np.ones((len(tokens), 2))

    return gate


def expert(rows: Any) -> Any:
    return rows


def decoder(held: Held) -> Any:
    async def logits(texts: Any, rows: Any) -> Any:
        await held.read(texts[0])
        return [np.ones((count, 16)) for count in rows]

    return cb.SpeculativeDecoder(cb.Cacheless(logits))


def behind(held: Held) -> Any:
    """Fair sharing in front of a server, which gets the item without a further copy."""
    inner = cb.DynamicBatchingServer[Any, Any](of_batches(held))
    return Stack(inner, cb.FairShareScheduler(inner.submit))


class Stack:
    """A server in front of another one."""

    def __init__(self, inner: Any, front: Any) -> None:
        self._inner, self._front = inner, front

    async def __aenter__(self) -> Any:
        await self._inner.start()
        return await self._front.start()

    async def __aexit__(self, *error: object) -> None:
        await self._front.stop()
        await self._inner.stop()


def version(model: Any) -> Any:
    return cb.ModelVersion("1", lambda: model)


@dataclass(frozen=True)
class Kind:
    """A kind of server: how it is made, and a request of it whose item holds a buffer."""

    make: Callable[[Held], Any]
    item: Callable[[Any], Any] = lambda buffer: buffer
    options: dict[str, Any] = field(default_factory=dict)
    buffer: Callable[[], Any] = lambda: np.array(GIVEN, np.float32)


KINDS: dict[str, Kind] = {
    "batching": Kind(lambda held: cb.DynamicBatchingServer(of_batches(held))),
    "batching on a thread": Kind(lambda held: cb.DynamicBatchingServer(batches_on_threads(held))),
    "calls": Kind(lambda held: CallServer(of_one(held)), lambda buffer: (buffer,)),
    "calls on a thread": Kind(lambda held: CallServer(on_threads(held)), lambda buffer: (buffer,)),
    "calls of a generator": Kind(lambda held: CallServer(in_parts(held)), lambda buffer: (buffer,)),
    "cascade": Kind(lambda held: cb.InferenceCascade([cb.CascadeStage(of_stages(held))])),
    "cascade, second stage": Kind(
        lambda held: cb.InferenceCascade(
            [cb.CascadeStage(first_stage, threshold=0.5), cb.CascadeStage(of_stages(held))]
        )
    ),
    "continuous batching": Kind(lambda held: cb.ContinuousBatchingServer(of_steps(held))),
    "fair share": Kind(lambda held: cb.FairShareScheduler(of_one(held)), options={"tenant": "a"}),
    "fair share in front": Kind(behind, options={"tenant": "a"}),
    "hot swap": Kind(lambda held: cb.ModelHotSwapServer(version(of_one(held)))),
    "hot swap of servers": Kind(
        lambda held: cb.ModelHotSwapServer(version(cb.DynamicBatchingServer(of_batches(held))))
    ),
    "mixture of experts": Kind(
        lambda held: cb.MoeRouter(of_experts(held), [expert, expert], top_k=1), lambda buffer: buffer.reshape(1, 2)
    ),
    "replicas": Kind(lambda held: cb.ModelReplicaPool([of_one(held)])),
    "sequences": Kind(
        lambda held: cb.SequenceBatchingServer(of_batches(held)), options={"sequence": 1, "start": True, "end": True}
    ),
    "speculative": Kind(decoder, lambda buffer: cb.Decode(buffer, max_new_tokens=1), buffer=lambda: list(GIVEN)),
}

Way = Callable[[Any, Any, dict[str, Any]], Awaitable[Any]]
"""Gives a server an item, with these options, and returns something to await."""


async def streamed(parts: Any) -> list[Any]:
    async with aclosing(parts):
        return [part async for part in parts]


WAYS: dict[str, Way] = {
    "task": lambda server, item, options: asyncio.create_task(server.submit(item, **options)),
    "submit_nowait": lambda server, item, options: server.submit_nowait(item, **options),
    "submit_threadsafe": lambda server, item, options: asyncio.wrap_future(server.submit_threadsafe(item, **options)),
    "stream": lambda server, item, options: asyncio.ensure_future(streamed(server.stream(item, **options))),
}
THREADS: dict[str, Callable[..., Any]] = {
    "ask": lambda server, item, options: server.ask(item, **options),
    "submit": lambda server, item, options: asyncio.run(server.submit(item, **options)),
    "iterate": lambda server, item, options: list(server.iterate(item, **options)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(len(KINDS))
async def test_a_buffer_may_be_written_when_the_call_has_returned(kind: str) -> None:
    for way, ask in WAYS.items():
        row, held = KINDS[kind], Held()
        async with asyncio.timeout(LIMIT), row.make(held) as server:
            buffer = row.buffer()
            waiting = ask(server, row.item(buffer), row.options)
            buffer[:] = LATER
            held.let_go()
            await waiting
            assert held.seen[0] == GIVEN, way


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(len(KINDS))
async def test_a_buffer_may_be_written_while_the_function_runs(kind: str) -> None:
    """Also one that a thread has given, whose other threads write it while it waits."""
    for way, ask in THREADS.items():
        row, held = KINDS[kind], Held()
        async with asyncio.timeout(LIMIT), row.make(held) as server:
            buffer = row.buffer()
            waiting = asyncio.create_task(asyncio.to_thread(ask, server, row.item(buffer), row.options))
            await held.begun.wait()
            buffer[:] = LATER
            held.let_go()
            await waiting
            assert held.seen[0] == GIVEN, way


def test_each_kind_of_server_is_here() -> None:
    def kinds(of: type[Any]) -> set[type[Any]]:
        return {of, *(kind for each in of.__subclasses__() for kind in kinds(each))}

    async def made() -> set[type[Any]]:
        return {type(row.make(Held())) for row in KINDS.values()}

    public = {kind for kind in kinds(RequestServer) if kind.__module__.startswith("callboard.")}
    assert asyncio.run(made()) - {Stack} == {kind for kind in public if not kind.__abstractmethods__}


async def test_two_requests_of_one_buffer_in_one_batch() -> None:
    """The loop over a camera: the buffer is filled again before the first frame has run."""

    async def sums(frames: list[Any]) -> list[int]:
        return [int(frame.sum()) for frame in frames]

    async with cb.DynamicBatchingServer(sums, max_batch=8) as server:
        frame, answers = np.empty(4), []
        for number in range(4):
            frame[:] = number
            answers.append(server.submit_nowait(frame))
        assert await asyncio.gather(*answers) == [0, 4, 8, 12]


async def test_an_item_is_copied_once_however_many_servers_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Any] = []

    def counted(item: Any) -> Any:
        copies.append(item)
        return item.copy()

    held = Held()
    held.let_go()
    monkeypatch.setattr("callboard.patterns.contract.atcall.taken", counted)
    for kind in ("fair share in front", "hot swap of servers", "cascade, second stage"):
        async with asyncio.timeout(LIMIT), KINDS[kind].make(held) as server:
            await server.submit(np.array(GIVEN), **KINDS[kind].options)
        assert len(copies) == 1, kind
        copies.clear()


# -- pipelines -----------------------------------------------------------------------------------------------------


async def test_a_source_may_yield_the_same_buffer_again() -> None:
    async def camera() -> Any:
        frame = np.empty(2, int)
        for number in range(6):
            frame[:] = number
            yield frame

    async def stage(frame: Any) -> list[int]:
        await asyncio.sleep(0)
        return frame.tolist()

    expected = [[number, number] for number in range(6)]
    assert await cb.PipelineExecutor[Any](stage, in_flight=4).collect(camera()) == expected
    async with cb.device("cpu", isolation="thread") as gpu:
        found = await cb.PipelineExecutor.on(gpu, lambda ref: ref + ref).collect(camera())
    assert [each.tolist() for each in found] == [[2 * a, 2 * b] for a, b in expected]


async def test_items_that_are_pushed_to_a_pipeline() -> None:
    async def stage(item: Any) -> list[int]:
        return item.tolist()

    async with asyncio.timeout(LIMIT), cb.PipelineSink(cb.PipelineExecutor[Any](stage), capacity=2) as sink:
        buffer = np.array(GIVEN)
        first = sink.submit(buffer)
        buffer[:] = LATER
        await first
        buffer[:] = GIVEN
        sink.try_submit(buffer)
        buffer[:] = LATER
        sink.close()
        assert [result async for result in sink] == [GIVEN, GIVEN]


# -- answers -------------------------------------------------------------------------------------------------------


async def frames(item: Any) -> Any:
    frame = np.empty(2, int)
    for number in range(3):
        frame[:] = number
        yield frame


async def batch_of_frames(items: list[Any]) -> list[Any]:
    return [frames(item) for item in items]


def step_with_a_buffer() -> Any:
    frame = np.empty(2, int)

    async def step(slots: list[Any]) -> list[Any]:
        frame[:] = len(slots[0].parts)
        return [frame if len(slots[0].parts) < 2 else cb.Last(frame)]

    return step


PARTS: dict[str, Callable[[], Any]] = {
    "batching": lambda: cb.DynamicBatchingServer(batch_of_frames),
    "calls": lambda: CallServer(frames),
    "continuous batching": lambda: cb.ContinuousBatchingServer(step_with_a_buffer()),
    "fair share": lambda: cb.FairShareScheduler(frames),
    "replicas": lambda: cb.ModelReplicaPool([frames]),
}


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.few(len(PARTS))
async def test_parts_of_an_answer_that_are_made_in_one_buffer(kind: str) -> None:
    async with asyncio.timeout(LIMIT), PARTS[kind]() as server:
        item = (1,) if kind == "calls" else 1
        found = await server.submit(item)
        assert [part.tolist() for part in found] == [[0, 0], [1, 1], [2, 2]]
        parts = await streamed(server.stream(item))
        assert [part.tolist() for part in parts] == [[0, 0], [1, 1], [2, 2]]


async def test_a_reader_may_write_a_part_of_a_sequence() -> None:
    kept: list[list[int]] = []

    async def step(slots: list[Any]) -> list[Any]:
        kept.extend(part.tolist() for part in slots[0].parts[-1:])
        part = np.array(GIVEN)
        return [part if len(slots[0].parts) < 2 else cb.Last(part)]

    async with asyncio.timeout(LIMIT), cb.ContinuousBatchingServer(step) as server:
        async with aclosing(server.stream(1, buffer=1)) as parts:
            async for part in parts:
                part[:] = LATER
    assert kept == [GIVEN, GIVEN]


async def test_an_answer_that_several_requests_have_is_each_ones_own() -> None:
    async def function(items: list[Any]) -> list[Any]:
        shared = np.array(GIVEN)
        return [shared for _ in items]

    async with cb.DynamicBatchingServer(function, max_batch=3) as server:
        first, *others = await asyncio.gather(*(server.submit(number) for number in range(3)))
        first[:] = LATER
        assert [other.tolist() for other in others] == [GIVEN, GIVEN]


async def test_a_caller_may_write_its_answer_while_it_is_compared_in_shadow() -> None:
    held, agreed, compared = Held(), [], asyncio.Event()

    async def small(items: list[Any]) -> list[Any]:
        return [(np.array(GIVEN), 1.0) for _ in items]

    async def large(items: list[Any]) -> list[Any]:
        await held.read(items[0])
        return [(np.array(GIVEN), 1.0) for _ in items]

    def agree(a: Any, b: Any) -> bool:
        agreed.append((a.tolist(), b.tolist()))
        compared.set()
        return True

    stages = [cb.CascadeStage(small, threshold=0.5), cb.CascadeStage(large)]
    async with asyncio.timeout(LIMIT), cb.InferenceCascade[Any, Any](stages, shadow=1.0, agree=agree) as cascade:
        reply = await cascade.submit(np.array(GIVEN))
        await held.begun.wait()
        reply.response[:] = LATER
        held.let_go()
        await compared.wait()
    assert agreed == [(GIVEN, GIVEN)]


async def test_a_caller_may_write_its_answer_while_a_version_is_in_shadow() -> None:
    held, agreed = Held(), []

    async def old(item: Any) -> Any:
        return np.array(GIVEN)

    async def new(item: Any) -> Any:
        await held.read(item)
        return np.array(GIVEN)

    def agree(a: Any, b: Any) -> bool:
        agreed.append((a.tolist(), b.tolist()))
        return True

    async with asyncio.timeout(LIMIT), cb.ModelHotSwapServer[Any, Any](version(old)) as server:
        canary = cb.Canary(share=1.0, requests=1, shadow=True, agree=agree)
        swap = asyncio.create_task(server.swap(cb.ModelVersion("2", lambda: new), canary=canary))
        replies = []
        while not held.begun.is_set():
            replies.append(await server.submit(np.array(GIVEN)))
            await asyncio.sleep(0)
        for reply in replies:
            reply.response[:] = LATER
        held.let_go()
        await swap
    assert agreed == [(GIVEN, GIVEN)]
