"""The three kinds of handler results, forwarding and piping."""

import asyncio
import concurrent.futures
import math
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, barrier, failing, turns, until

from callboard.actors import (
    ActorRef,
    ActorStopped,
    ActorSystem,
    HandlerCancelled,
    Msg,
    Pinned,
    Props,
    ReplyError,
    Request,
)
from callboard.actors.refs import cell_of


class Refused(ReplyError):
    pass


class Unknown(Request["Lab", int]):
    pass


async def test_async_handler_occupies_the_actor(system: ActorSystem) -> None:
    """ActorModelSpec: process one message at a time."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    gate = asyncio.Event()

    async def slow(actor: Lab) -> None:
        actor.write("in")
        await gate.wait()
        actor.write("out")

    reply = ref.ask(Do(call=slow))
    ref.tell(Note(text="after"))
    await turns()
    assert journal == ["start", "in"]
    gate.set()
    await reply
    await barrier(ref)
    assert journal == ["start", "in", "out", "after"]


async def test_future_lets_the_mailbox_go_on(system: ActorSystem) -> None:
    """The envelope rule: reply when it completes, in order of completion."""
    ref = system.actor_of(Props(Lab))
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(2)]
    replies = [ref.ask(Do(call=lambda _, f=f: f)) for f in futures]
    assert await ref.ask(Do(call=lambda _: "meanwhile")) == "meanwhile"
    futures[1].set_result("b")
    assert await replies[1] == "b"
    assert not replies[0].done()
    futures[0].set_result("a")
    assert await replies[0] == "a"


async def test_concurrent_future_completes_from_a_thread(system: ActorSystem) -> None:
    ref = system.actor_of(Props(Lab))
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    reply = ref.ask(Do(call=lambda _: future), timeout=math.inf)
    await barrier(ref)
    await asyncio.to_thread(future.set_result, 3)
    assert await reply == 3


async def test_future_of_another_loop(system: ActorSystem) -> None:
    """The pinned actor's future lives on its loop, the handler that returns it here."""
    here = system.actor_of(Props(Lab), "here")
    there = system.actor_of(Props(Lab).with_dispatcher(Pinned("there")), "there")

    async def sleepy() -> str:
        await asyncio.sleep(0)
        return "made there"

    box = await there.ask(Do(call=lambda _: [asyncio.ensure_future(sleepy())]), timeout=math.inf)
    assert await here.ask(Do(call=lambda _: box[0]), timeout=math.inf) == "made there"


async def test_awaitable_object_is_awaited(system: ActorSystem) -> None:
    class Later:
        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            return "later"

    ref = system.actor_of(Props(Lab))
    assert await ref.ask(Do(call=lambda _: Later())) == "later"


async def test_failing_completion_fails_the_actor_once(system: ActorSystem) -> None:
    """Both the asker and the supervisor hear of it; the actor restarts once."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(2)]
    replies = [ref.ask(Do(call=lambda _, f=f: f)) for f in futures]
    await barrier(ref)
    for future in futures:
        future.set_exception(OSError("device"))
    for reply in replies:
        with pytest.raises(OSError, match="device"):
            await reply
    await barrier(ref)
    assert journal == ["start", "stop", "start"]


async def test_completed_asks_are_forgotten(system: ActorSystem) -> None:
    ref = system.actor_of(Props(Lab))
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = ref.ask(Do(call=lambda _: future))
    await barrier(ref)
    assert len(cell_of(ref).inflight) == 1
    future.set_result(1)
    await reply
    assert len(cell_of(ref).inflight) == 0


async def test_completion_of_an_old_incarnation_is_ignored(system: ActorSystem) -> None:
    """Its asker still gets the answer, but the new instance is not failed by it."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = ref.ask(Do(call=lambda _: future))
    await failing(ref, ValueError("restart"))
    await barrier(ref)
    future.set_exception(OSError("old"))
    with pytest.raises(OSError, match="old"):
        await reply
    await barrier(ref)
    assert journal == ["start", "stop", "start"]


async def test_answer_by_completion_restarts_nobody(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = ref.ask(Do(call=lambda _: future))
    await barrier(ref)
    future.set_exception(Refused("no"))
    with pytest.raises(Refused):
        await reply
    await barrier(ref)
    assert journal == ["start"]


@pytest.mark.parametrize("how", ["await", "completion"])
async def test_cancellation_inside_a_handler_is_a_failure(system: ActorSystem, how: str) -> None:
    """Only the runtime's own cancel stops an actor."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def wait(_: Lab) -> int:
        return await future

    reply = ref.ask(Do(call=wait if how == "await" else lambda _: future))
    await turns()
    future.cancel()
    with pytest.raises(HandlerCancelled):
        await reply
    await barrier(ref)
    assert journal == ["start", "stop", "start"]


async def test_handlers_run_in_a_real_task(system: ActorSystem) -> None:
    """asyncio.timeout and TaskGroup work inside handlers."""
    ref = system.actor_of(Props(Lab))

    async def work(_: Lab) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "grouped"))
        try:
            async with asyncio.timeout(0):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return task.result()
        return "no timeout"

    assert await ref.ask(Do(call=work)) == "grouped"


async def test_forward_keeps_the_asker(system: ActorSystem) -> None:
    """The other actor replies to the original asker."""
    worker = system.actor_of(Props(Lab), "worker")
    front = system.actor_of(Props(Lab), "front")

    class Route(Lab):
        def unhandled(self, message: Any) -> Any:
            self.forward(front)

    def answer(actor: Lab, message: Any) -> Any:
        return f"answered by {actor.ref.name}"

    await front.ask(Do(call=lambda a: a.become(lambda m: answer(a, m))))
    router = system.actor_of(Props(Route), "router")
    assert await router.ask(Unknown()) == "answered by front"
    await worker.stop_and_wait()
    await front.stop_and_wait()
    with pytest.raises(ActorStopped):
        await router.ask(Unknown())


async def test_forward_twice_is_an_error(system: ActorSystem) -> None:
    other = system.actor_of(Props(Lab))
    ref = system.actor_of(Props(Lab))
    errors: list[BaseException] = []

    def twice(actor: Lab) -> None:
        if actor.ref is other:
            return
        actor.forward(other)
        try:
            actor.forward(other)
        except RuntimeError as error:
            errors.append(error)

    await ref.ask(Do(call=twice))
    assert len(errors) == 1


class Ping(Msg["Lab"]):
    pass


async def test_pipe_sends_the_result_as_a_message(system: ActorSystem) -> None:
    """PipeToSpec: to recipient when the future is successful; failure mapped."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))

    async def good() -> str:
        return "piped"

    async def bad() -> str:
        raise OSError("broken")

    def failed(error: BaseException) -> Note:
        return Note(text=f"failed {error}")

    await ref.ask(Do(call=lambda a: a.pipe(good(), lambda r: Note(text=r))))
    await ref.ask(Do(call=lambda a: a.pipe(bad(), lambda r: Note(text=r), failed)))
    await until(lambda: len(journal) == 3)
    assert sorted(journal[1:]) == ["failed broken", "piped"]


async def test_pipe_adapter_failure_fails_the_actor(system: ActorSystem) -> None:
    """MessageAdapterSpec: an adapter that throws is a failure of its actor."""
    journal: list[str] = []
    ref: ActorRef[Lab] = system.actor_of(Props(Lab, journal))

    async def good() -> str:
        return "x"

    await ref.ask(Do(call=lambda a: a.pipe(good(), lambda _: 1 / 0)))
    await until(lambda: journal == ["start", "stop", "start"])
