"""Timers and the receive timeout, on a clock that stands still."""

import asyncio
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, barrier, failing, turns

from callboard.actors import (
    Actor,
    ActorRef,
    ActorSystem,
    LoopClock,
    ManualClock,
    Msg,
    NotInfluenceReceiveTimeout,
    Props,
    ReceiveTimeout,
)


async def do(ref: ActorRef[Any], call: Any) -> Any:
    return await ref.ask(Do(call=call), timeout=1e9)


async def pass_time(ref: ActorRef[Any], clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await barrier(ref)


def lab(system: ActorSystem) -> tuple[ActorRef[Lab], list[str]]:
    journal: list[str] = []
    return system.actor_of(Props(Lab, journal)), journal


async def test_single_timer(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: schedule a single-shot tick; inactive once it is handled."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_once("t", Note(text="tick"), 1.0))
    assert await do(ref, lambda a: a.timers.is_active("t"))
    await pass_time(ref, clock, 0.9)
    assert journal == ["start"]
    await pass_time(ref, clock, 0.2)
    await pass_time(ref, clock, 10.0)
    assert journal == ["start", "tick"]
    assert not await do(ref, lambda a: a.timers.is_active("t"))


async def test_fixed_delay(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: schedule repeated ticks with fixed delay."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_fixed_delay("t", Note(text="tick"), 1.0))
    for _ in range(3):
        await pass_time(ref, clock, 1.0)
    assert journal.count("tick") == 3


async def test_first_delay_may_differ(system: ActorSystem, clock: ManualClock) -> None:
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_fixed_delay("t", Note(text="tick"), 10.0, first=0.0))
    await pass_time(ref, clock, 0.0)
    assert journal.count("tick") == 1
    await pass_time(ref, clock, 10.0)
    assert journal.count("tick") == 2


class LateClock(ManualClock):
    """Calls come as late as the test says."""

    late = 0.0

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
        return super().call_later(delay + self.late, callback, *args)


@pytest.mark.parametrize("kind, expected", [("start_fixed_rate", 10), ("start_fixed_delay", 7)])
async def test_rate_catches_up_and_delay_does_not(kind: str, expected: int) -> None:
    """SchedulerSpec: fixed rate keeps the count although each call is late; fixed delay shifts."""
    clock = LateClock()
    async with ActorSystem("test", clock=clock) as system:
        ref, journal = lab(system)
        await do(ref, lambda a: None)
        clock.late = 0.5
        await do(ref, lambda a: getattr(a.timers, kind)("t", Note(text="tick"), 1.0))
        for _ in range(108):
            clock.advance(0.1)
        clock.late = 0.0
        await turns()
        assert journal.count("tick") == expected
        await do(ref, lambda a: a.timers.cancel_all())


async def test_same_key_replaces(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: replace timer."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_once("t", Note(text="old"), 1.0))
    await do(ref, lambda a: a.timers.start_once("t", Note(text="new"), 2.0))
    await do(ref, lambda a: a.timers.start_once("other", Note(text="other"), 3.0))
    await pass_time(ref, clock, 5.0)
    assert journal == ["start", "new", "other"]


async def test_cancel(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: cancel timer; cancelling an unknown key does nothing."""
    ref, journal = lab(system)
    await do(ref, lambda a: None)
    pending = clock.pending  # the timer of the ask timeouts
    await do(ref, lambda a: a.timers.start_fixed_delay("t", Note(text="tick"), 1.0))
    await do(ref, lambda a: a.timers.cancel("t") or a.timers.cancel("unknown"))
    await pass_time(ref, clock, 5.0)
    assert journal == ["start"]
    assert clock.pending == pending


@pytest.mark.parametrize("how", ["cancel", "replace"])
async def test_queued_tick_of_an_old_timer_is_discarded(system: ActorSystem, clock: ManualClock, how: str) -> None:
    """typed TimerSpec: discard timers from old incarnation / outdated ticks that are in the mailbox."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_once("t", Note(text="stale"), 1.0))
    gate = asyncio.Event()

    async def busy(actor: Lab) -> None:
        await gate.wait()
        if how == "cancel":
            actor.timers.cancel("t")
        else:
            actor.timers.start_once("t", Note(text="fresh"), 1.0)

    reply = ref.ask(Do(call=busy), timeout=1e9)
    await turns()
    clock.advance(1.0)
    gate.set()
    await reply
    await pass_time(ref, clock, 1.0)
    assert journal == ["start"] + (["fresh"] if how == "replace" else [])


async def test_queued_tick_is_discarded_by_a_restart(system: ActorSystem, clock: ManualClock) -> None:
    """typed TimerSpec: discard TimerMsg on restart."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_once("t", Note(text="stale"), 1.0))
    gate = asyncio.Event()

    async def busy(_: Lab) -> None:
        await gate.wait()
        raise ValueError("restart")

    reply = ref.ask(Do(call=busy), timeout=1e9)
    await turns()
    clock.advance(1.0)
    gate.set()
    with pytest.raises(ValueError, match="restart"):
        await reply
    await pass_time(ref, clock, 5.0)
    assert journal == ["start", "stop", "start"]


@pytest.mark.parametrize("how", ["restart", "stop"])
async def test_timers_end_with_the_incarnation(system: ActorSystem, clock: ManualClock, how: str) -> None:
    """TimerSpec: cancel timers when restarted / stopped."""
    ref, journal = lab(system)
    await do(ref, lambda a: a.timers.start_fixed_rate("t", Note(text="tick"), 1.0))
    if how == "stop":
        await ref.stop_and_wait()
    else:
        await failing(ref, ValueError("x"))
        await barrier(ref)
    clock.advance(10.0)
    await turns()
    assert "tick" not in journal


async def test_timer_started_in_pre_start_is_started_again(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: be scheduled on restart when pre_start starts it."""

    class Ticking(Lab):
        def pre_start(self) -> None:
            self.timers.start_once("t", Note(text="tick"), 1.0)

    journal: list[str] = []
    ref = system.actor_of(Props(Ticking, journal))
    await barrier(ref)
    clock.advance(0.5)
    await failing(ref, ValueError("x"))
    await pass_time(ref, clock, 0.6)
    assert "tick" not in journal
    await pass_time(ref, clock, 0.5)
    assert journal.count("tick") == 1


async def test_tick_can_be_stashed(system: ActorSystem, clock: ManualClock) -> None:
    """TimerSpec: work with stash: a tick that was accepted is not discarded when it comes back."""
    seen: list[str] = []

    class Late(Lab):
        closed = True

        @Note.handles
        def note(self, m: Note) -> None:
            if self.closed:
                self.stash()
            else:
                seen.append(m.text)

    def reopen(actor: Late) -> None:
        actor.closed = False
        actor.unstash_all()

    ref = system.actor_of(Props(Late))
    await do(ref, lambda a: a.timers.start_once("t", Note(text="tick"), 1.0))
    await pass_time(ref, clock, 1.0)
    await do(ref, reopen)
    await barrier(ref)
    assert seen == ["tick"]


@pytest.mark.parametrize("period", [0.0, -1.0])
async def test_period_must_be_positive(system: ActorSystem, period: float) -> None:
    """SchedulerSpec: refuse a zero or negative interval."""
    ref, _ = lab(system)
    for start in ("start_fixed_delay", "start_fixed_rate"):
        with pytest.raises(ValueError, match="positive"):
            await do(ref, lambda a, start=start: getattr(a.timers, start)("t", Note(text="x"), period))
    with pytest.raises(ValueError, match="negative"):
        await do(ref, lambda a: a.timers.start_once("t", Note(text="x"), -1.0))


# -- receive timeout ---------------------------------------------------------------------------------------------------


class Quiet(Msg["Sleeper"], NotInfluenceReceiveTimeout):
    pass


class Sleeper(Lab):
    @ReceiveTimeout.handles
    def idle(self, m: ReceiveTimeout) -> None:
        self.write("idle")

    @Quiet.handles
    def quiet(self, m: Quiet) -> None:
        self.write("quiet")


def sleeper(system: ActorSystem) -> tuple[ActorRef[Sleeper], list[str]]:
    journal: list[str] = []
    return system.actor_of(Props(Sleeper, journal)), journal


async def advance(clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await turns()


async def test_receive_timeout_comes_again_and_again(system: ActorSystem, clock: ManualClock) -> None:
    """ReceiveTimeoutSpec: get timeout; reschedule timeout after regular receive."""
    ref, journal = sleeper(system)
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    await advance(clock, 1.0)
    await advance(clock, 1.0)
    assert journal.count("idle") == 2


async def test_messages_put_it_off(system: ActorSystem, clock: ManualClock) -> None:
    """ReceiveTimeoutSpec: not get timeout while messages come."""
    ref, journal = sleeper(system)
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    for _ in range(5):
        await advance(clock, 0.6)
        ref.tell(Note(text="busy"))
        await turns()
    assert "idle" not in journal
    await advance(clock, 1.0)
    assert journal.count("idle") == 1


async def test_quiet_messages_do_not_count(system: ActorSystem, clock: ManualClock) -> None:
    """ReceiveTimeoutSpec: get timeout while receiving NotInfluenceReceiveTimeout messages."""
    ref, journal = sleeper(system)
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    for _ in range(6):
        await advance(clock, 0.4)
        ref.tell(Quiet())
        await turns()
    assert journal.count("idle") == 2


async def test_it_can_be_ended_and_changed(system: ActorSystem, clock: ManualClock) -> None:
    """ReceiveTimeoutSpec: be able to turn off timeout; be able to change it in a handler."""
    ref, journal = sleeper(system)
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    await do(ref, lambda a: a.set_receive_timeout(5.0))
    await advance(clock, 4.0)
    assert "idle" not in journal
    await do(ref, lambda a: a.set_receive_timeout(None))
    await advance(clock, 100.0)
    assert "idle" not in journal


@pytest.mark.parametrize("how", ["restart", "stop"])
async def test_it_ends_with_the_incarnation(system: ActorSystem, clock: ManualClock, how: str) -> None:
    """Row 31: cancelled by stop and by restart."""
    ref, journal = sleeper(system)
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    if how == "stop":
        await ref.stop_and_wait()
    else:
        await failing(ref, ValueError("x"))
    await advance(clock, 50.0)
    assert "idle" not in journal


async def test_unhandled_receive_timeout_is_an_event(system: ActorSystem, clock: ManualClock) -> None:
    ref = system.actor_of(Props(Lab))
    await do(ref, lambda a: a.set_receive_timeout(1.0))
    await advance(clock, 1.0)
    assert system.dead_letters.counts == {"unhandled": 1}
    await do(ref, lambda a: a.set_receive_timeout(None))


# -- clocks ------------------------------------------------------------------------------------------------------------


async def test_manual_clock_calls_in_order_at_their_moments() -> None:
    clock = ManualClock(100.0)
    seen: list[tuple[str, float]] = []

    def call(name: str) -> None:
        seen.append((name, clock.time()))
        if name == "b":
            clock.call_later(0.5, call, "chained")

    clock.call_later(2.0, call, "c")
    clock.call_later(1.0, call, "b")
    clock.call_later(1.0, call, "b2")
    clock.call_later(1.2, call, "cancelled").cancel()
    clock.advance(1.9)
    assert seen == [("b", 101.0), ("b2", 101.0), ("chained", 101.5)]
    assert (clock.time(), clock.pending) == (101.9, 1)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1.0)


async def test_loop_clock_calls_on_the_running_loop() -> None:
    clock = LoopClock()
    done = asyncio.get_running_loop().create_future()
    before = clock.time()
    clock.call_later(0.0, done.set_result, "called")
    clock.call_later(1e6, done.set_result, "too late").cancel()
    assert await done == "called"
    assert clock.time() >= before


async def test_timers_with_the_real_clock() -> None:
    """The same through the loop's own timers."""
    fired: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Real(Actor):
        def pre_start(self) -> None:
            self.timers.start_once("t", ReceiveTimeout(), 0.001)

        @ReceiveTimeout.handles
        def tick(self, m: ReceiveTimeout) -> None:
            fired.set_result("fired")

    async with ActorSystem("test") as system:
        system.actor_of(Props(Real))
        assert await asyncio.wait_for(fired, 10.0) == "fired"


async def test_a_call_of_a_loop_that_has_closed_is_dropped() -> None:
    """A thread with a loop of its own has ended while the clock still had a call for it."""
    clock, made = ManualClock(), []

    async def later() -> None:
        clock.call_later(1.0, made.append, "there")

    await asyncio.to_thread(asyncio.run, later())
    clock.call_later(1.0, made.append, "here")
    clock.advance(1.0)
    assert made == ["here"]
    assert clock.pending == 0
