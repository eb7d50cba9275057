"""Asks, replies, timeouts, cancellation."""

import asyncio
import gc
import logging
import math
import threading
import weakref
from typing import Any

import pytest
from actor_lab import Do, Fail, Lab, Note, barrier, failing, turns

from callboard.actors import (
    ActorStopped,
    ActorSystem,
    AskTimeout,
    Mailbox,
    MailboxFull,
    ManualClock,
    Props,
    ReplyError,
    Request,
    SelfAsk,
    UnhandledMessage,
)


class Refused(ReplyError):
    pass


class Unknown(Request["Lab", int]):
    pass


async def hang(_: Any) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("timeout", [0, 0.0, -1.0, -math.inf, math.nan])
async def test_timeout_must_be_positive(system: ActorSystem, timeout: float) -> None:
    """AskSpec: return broken promises on 0 timeout / on negative timeout."""
    ref = system.actor_of(Props(Lab))
    with pytest.raises(ValueError, match="positive"):
        ref.ask(Do(call=lambda _: 1), timeout=timeout)
    with pytest.raises(ValueError, match="positive"):
        ref.ask_blocking(Do(call=lambda _: 1), timeout=timeout)
    with pytest.raises(ValueError, match="positive"):
        await ref.offer(Note(text="x"), timeout=timeout)


async def test_timeout_names_target_timeout_and_class(system: ActorSystem, clock: ManualClock) -> None:
    """AskSpec: include target / timeout / message class information in the error."""
    ref = system.actor_of(Props(Lab), "slow")
    reply = ref.ask(Do(call=hang), timeout=2.5)
    await turns()
    clock.advance(2.4)
    assert not reply.done()
    clock.advance(0.2)
    with pytest.raises(AskTimeout) as caught:
        await reply
    error = caught.value
    assert (error.target, error.timeout, error.message_type, error.sender) == ("/test/slow", 2.5, "Do", None)
    assert isinstance(error, TimeoutError)
    assert all(word in str(error) for word in ("/test/slow", "2.5", "Do"))


async def test_timeout_names_the_asking_actor(system: ActorSystem, clock: ManualClock) -> None:
    """AskSpec: include sender information in AskTimeout."""
    slow = system.actor_of(Props(Lab), "slow")
    asker = system.actor_of(Props(Lab), "asker")
    outer = asker.ask(Do(call=lambda _: slow.ask(Do(call=hang), timeout=1.0)), timeout=100.0)
    await turns()
    clock.advance(1.0)
    with pytest.raises(AskTimeout) as caught:
        await outer
    assert caught.value.sender == "/test/asker"
    assert "/test/asker" in str(caught.value)


async def test_each_ask_has_its_own_timeout(system: ActorSystem, clock: ManualClock) -> None:
    """Mixed timeouts share one timer."""
    ref = system.actor_of(Props(Lab))
    replies = {t: ref.ask(Do(call=hang), timeout=t) for t in (3.0, 1.0, 2.0)}
    await turns()
    done = []
    for _ in range(3):
        clock.advance(1.0)
        done.append(sorted(t for t, reply in replies.items() if reply.done()))
    assert done == [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]
    for reply in replies.values():
        assert isinstance(reply.exception(), AskTimeout)


async def test_answered_asks_leave_no_timer_work_behind(system: ActorSystem, clock: ManualClock) -> None:
    """The deadline queues drop answered asks, also for ever new timeout values."""
    ref = system.actor_of(Props(Lab))
    deadlines = system._port_of(asyncio.get_running_loop()).deadlines
    for i in range(10_000):
        await ref.ask(Do(call=lambda _: None), timeout=5.0 + i)
    assert len(deadlines) < 5_000
    assert clock.pending == 1


async def test_a_reply_is_not_kept_alive_until_its_deadline(system: ActorSystem) -> None:
    """A large result must be collectable as soon as the asker drops it."""

    class Big:
        pass

    ref = system.actor_of(Props(Lab))
    result = await ref.ask(Do(call=lambda _: Big()))
    gone = weakref.ref(result)
    del result
    await barrier(ref)
    gc.collect()
    assert gone() is None


async def test_dead_target_fails_at_once(system: ActorSystem) -> None:
    """AskSpec: return broken promises on a terminated actor, and publish a dead letter."""
    ref = system.actor_of(Props(Lab))
    await ref.stop_and_wait()
    with pytest.raises(ActorStopped, match="is stopped"):
        await ref.ask(Do(call=lambda _: 1))
    assert system.dead_letters.counts == {"stopped": 1}


async def test_target_that_stops_fails_queued_asks(system: ActorSystem) -> None:
    """typed AskSpec: fail the future if the target terminates before it replies."""
    ref = system.actor_of(Props(Lab))
    gate = asyncio.Event()

    async def wait(_: Lab) -> str:
        await gate.wait()
        return "finished"

    first = ref.ask(Do(call=wait))
    queued = ref.ask(Do(call=lambda _: 1))
    await turns()
    ref.stop()
    await turns()
    gate.set()
    assert await first == "finished"
    with pytest.raises(ActorStopped):
        await queued


async def test_target_that_stops_fails_asks_with_pending_completions(system: ActorSystem) -> None:
    """A reply that waits for a future fails at once when its actor stops."""
    ref = system.actor_of(Props(Lab))
    pending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reply = ref.ask(Do(call=lambda _: pending))
    await barrier(ref)
    await ref.stop_and_wait()
    with pytest.raises(ActorStopped):
        await reply
    pending.set_result(1)
    await turns()


async def test_late_reply_is_a_dead_letter(system: ActorSystem, clock: ManualClock) -> None:
    """OTP 24 drops late replies; here they are counted."""
    ref = system.actor_of(Props(Lab), "late")
    gate = asyncio.Event()

    async def wait(_: Lab) -> str:
        await gate.wait()
        return "too late"

    reply = ref.ask(Do(call=wait), timeout=1.0)
    await turns()
    clock.advance(1.0)
    with pytest.raises(AskTimeout):
        await reply
    gate.set()
    await barrier(ref)
    letter = system.dead_letters.recent()[-1]
    assert (letter.message, letter.target, letter.reason) == ("too late", "/test/late", "late_reply")


async def test_cancelled_asker_frees_its_queued_message(system: ActorSystem) -> None:
    """A queued request of a cancelled asker is skipped."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    reply = ref.ask(Do(call=lambda a: a.write("ran")))
    reply.cancel()
    await barrier(ref)
    assert journal == ["start"]
    assert system.dead_letters.counts == {"cancelled": 1}


async def test_cancelled_asker_never_cancels_a_started_handler(system: ActorSystem) -> None:
    """Unlike xoscar, a handler is not tied to its asker's task."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    gate = asyncio.Event()

    async def work(actor: Lab) -> None:
        await gate.wait()
        actor.write("finished")

    async def ask() -> None:
        await ref.ask(Do(call=work))

    asker = asyncio.create_task(ask())
    await turns()
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    gate.set()
    await barrier(ref)
    assert journal == ["start", "finished"]


async def test_replies_come_in_order_of_requests(system: ActorSystem) -> None:
    """typed AskSpec: replies of one actor come in order."""
    ref = system.actor_of(Props(Lab))
    order: list[int] = []
    replies = [ref.ask(Do(call=lambda _, i=i: i)) for i in range(10)]
    for reply in replies:
        reply.add_done_callback(lambda done: order.append(done.result()))
    assert await asyncio.gather(*replies) == list(range(10))
    await turns()
    assert order == list(range(10))


async def test_self_ask_is_refused(system: ActorSystem) -> None:
    """pykka #48, #76: an actor that waits for itself waits for ever."""
    ref = system.actor_of(Props(Lab))

    async def ask_self(actor: Lab) -> Any:
        return await actor.ref.ask(Do(call=lambda _: 1))

    with pytest.raises(SelfAsk, match="asks itself"):
        await ref.ask(Do(call=ask_self))

    async def ask_self_from_a_thread(actor: Lab) -> Any:
        return await asyncio.to_thread(actor.ref.ask_blocking, Do(call=lambda _: 1))

    with pytest.raises(SelfAsk):
        await ref.ask(Do(call=ask_self_from_a_thread))


async def test_background_task_may_ask_its_own_actor(system: ActorSystem) -> None:
    """It does not occupy the actor, so nothing can dead-lock."""
    ref = system.actor_of(Props(Lab))

    async def ask_self(actor: Lab) -> Any:
        return await actor.ref.ask(Do(call=lambda _: "answer"))

    task = await ref.ask(Do(call=lambda a: [a.background(ask_self(a))]))
    assert await task[0] == "answer"


async def test_ask_blocking_on_a_loop_raises(system: ActorSystem) -> None:
    """Blocking the loop's own thread would dead-lock."""
    ref = system.actor_of(Props(Lab))
    with pytest.raises(RuntimeError, match="event loop"):
        ref.ask_blocking(Do(call=lambda _: 1))


async def test_ask_blocking_from_a_thread(system: ActorSystem) -> None:
    """Value, failure and answer all reach a thread without a loop."""
    ref = system.actor_of(Props(Lab))
    assert await asyncio.to_thread(ref.ask_blocking, Do(call=lambda _: 7)) == 7
    with pytest.raises(Refused, match="no"):
        await asyncio.to_thread(ref.ask_blocking, Fail(error=Refused("no")))
    with pytest.raises(KeyError):
        await asyncio.to_thread(ref.ask_blocking, Fail(error=KeyError("k")))
    await ref.stop_and_wait()
    with pytest.raises(ActorStopped):
        await asyncio.to_thread(ref.ask_blocking, Do(call=lambda _: 7))


async def test_ask_blocking_times_out() -> None:
    """The timeout holds without a loop, too."""
    async with ActorSystem("test") as system:
        ref = system.actor_of(Props(Lab), "slow")
        gate = asyncio.Event()

        async def wait(_: Lab) -> None:
            await gate.wait()

        with pytest.raises(AskTimeout, match="/test/slow"):
            await asyncio.to_thread(ref.ask_blocking, Do(call=wait), timeout=0.01)
        gate.set()


async def test_ask_without_a_loop_names_the_way_out(system: ActorSystem) -> None:
    ref = system.actor_of(Props(Lab))
    with pytest.raises(RuntimeError, match="no running event loop"):
        await asyncio.to_thread(ref.ask, Do(call=lambda _: 1))


async def test_ask_from_another_loop(system: ActorSystem) -> None:
    """The reply arrives on the loop that asked."""
    ref = system.actor_of(Props(Lab))

    async def elsewhere() -> tuple[Any, bool]:
        reply = ref.ask(Do(call=lambda _: threading.get_ident()))
        return await reply, reply.get_loop() is asyncio.get_running_loop()

    ident, same = await asyncio.to_thread(asyncio.run, elsewhere())
    assert ident == threading.get_ident()
    assert same


async def test_request_without_a_handler_is_answered_with_an_error(system: ActorSystem) -> None:
    """Row 26: UnhandledMessage is an event, and an answer; the actor is not restarted."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal), "lab")
    with pytest.raises(UnhandledMessage, match=r"/test/lab \(Lab\) has no handler for Unknown"):
        await ref.ask(Unknown())
    assert system.dead_letters.counts == {"unhandled": 1}
    assert journal == ["start"]


async def test_reply_error_is_only_an_answer(system: ActorSystem, caplog: pytest.LogCaptureFixture) -> None:
    """A ReplyError goes to the asker; nobody is restarted and nothing is logged."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    with caplog.at_level(logging.DEBUG, "callboard.actors"):
        assert isinstance(await failing(ref, Refused("no")), Refused)
        await barrier(ref)
    assert journal == ["start"]
    assert caplog.records == []


async def test_reply_error_without_an_asker_is_not_lost(system: ActorSystem, caplog: pytest.LogCaptureFixture) -> None:
    ref = system.actor_of(Props(Lab))
    ref.tell(Fail(error=Refused("nobody asked")))
    await barrier(ref)
    assert system.dead_letters.counts == {"reply_error": 1}
    assert len(caplog.records) == 1


async def test_single_leaf_group_is_unwrapped(system: ActorSystem) -> None:
    """A TaskGroup in a handler must not turn an answer into a failure."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    assert isinstance(await failing(ref, ExceptionGroup("tasks", [Refused("no")])), Refused)
    assert journal == ["start"]


async def test_full_mailbox_fails_the_asker(system: ActorSystem) -> None:
    ref = system.actor_of(Props(Lab).with_mailbox(Mailbox(1)))
    await barrier(ref)
    first = ref.ask(Do(call=lambda _: 1))
    with pytest.raises(MailboxFull, match="1 messages"):
        await ref.ask(Do(call=lambda _: 2))
    assert await first == 1


async def test_fire_and_forget_failure_is_logged_once(system: ActorSystem, caplog: pytest.LogCaptureFixture) -> None:
    """One failure, one record: not again by asyncio when nobody awaits the future."""
    ref = system.actor_of(Props(Lab))
    ref.ask(Fail(error=ValueError("once")))
    await barrier(ref)
    gc.collect()
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_stop_iteration_of_a_handler_reaches_the_asker(system: ActorSystem) -> None:
    """A future cannot hold StopIteration; the asker must not hang for that."""
    ref = system.actor_of(Props(Lab))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ref.ask(Fail(error=StopIteration(3)))
