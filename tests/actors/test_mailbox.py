"""Lanes by themselves, and bounded and ordered mailboxes in a system."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, barrier, turns, until
from tests.together import together

from callboard.actors import (
    ActorRef,
    ActorStopped,
    ActorSystem,
    Mailbox,
    MailboxFull,
    ManualClock,
    Msg,
    Pinned,
    Props,
    Terminated,
)
from callboard.actors._runtime.envelopes import Kill, Obituary, Poison, Tick
from callboard.actors.mailbox import UnboundedLane, UserLane
from callboard.actors.refs import cell_of


def lane(mailbox: Mailbox, rejected: Callable[[Any, str], None] | None = None) -> UserLane:
    return mailbox.lane("/test/lane", rejected or (lambda item, reason: None))


def drain(lane: UserLane) -> list[Any]:
    return [lane.pop() for _ in range(len(lane.items))]


@pytest.mark.parametrize("mailbox", [Mailbox(), Mailbox(1000), Mailbox(priority=lambda m: 0)])
def test_first_in_first_out_and_count(mailbox: Mailbox) -> None:
    """ActorMailboxSpec / MailboxConfigSpec: FIFO; numberOfMessages."""
    a = lane(mailbox)
    for i in range(100):
        a.push(i)
    assert len(a.items) == 100
    assert drain(a) == list(range(100))
    with pytest.raises(IndexError):
        a.pop()


@pytest.mark.parametrize("mailbox", [Mailbox(), Mailbox(2), Mailbox(priority=lambda m: 0)])
def test_push_front_keeps_the_order_and_ignores_the_bound(mailbox: Mailbox) -> None:
    a = lane(mailbox)
    for item in "xy":
        a.push(item)
    a.push_front("abc")
    assert drain(a) == list("abcxy")


def test_fail_raises_and_queues_nothing() -> None:
    """MailboxConfigSpec: push timeout 0: refuse at once."""
    a = lane(Mailbox(2))
    a.push(1)
    a.push(2)
    with pytest.raises(MailboxFull, match=r"/test/lane is full \(2 messages\)"):
        a.push(3)
    assert drain(a) == [1, 2]
    a.push(4)
    assert drain(a) == [4]


@pytest.mark.parametrize(
    "policy, kept, lost",
    [
        ("drop_new", [1, 2], [(3, "mailbox_full"), (4, "mailbox_full")]),
        ("drop_old", [3, 4], [(1, "dropped_old"), (2, "dropped_old")]),
    ],
)
def test_dropping_policies(policy: Any, kept: list[int], lost: list[tuple[int, str]]) -> None:
    """Row 27: overflow goes to the dead letters."""
    rejected: list[tuple[int, str]] = []
    a = lane(Mailbox(2, policy), lambda item, reason: rejected.append((item, reason)))
    for i in range(1, 5):
        a.push(i)
    assert (drain(a), rejected) == (kept, lost)


def test_internal_items_are_neither_bounded_nor_dropped() -> None:
    """Row 27: system messages are never bounded."""
    rejected: list[Any] = []
    a = lane(Mailbox(2, "drop_old"), lambda item, reason: rejected.append(item))
    internal = [Tick("k", 1, None), Obituary(1, None), Poison(), Kill()]
    for item in internal:
        a.push_always(item)
    a.push("refused")
    assert (drain(a), rejected) == (internal, ["refused"])


def test_priority_is_stable() -> None:
    """PriorityDispatcherSpec: order by priority; StablePriority: FIFO within one."""
    a = lane(Mailbox(priority=lambda m: m[0]))
    for item in [(2, "a"), (1, "b"), (2, "c"), (0, "d"), (1, "e")]:
        a.push(item)
    assert drain(a) == [(0, "d"), (1, "b"), (1, "e"), (2, "a"), (2, "c")]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"capacity": 0}, "at least 1"),
        ({"capacity": -1}, "at least 1"),
        ({"capacity": 1, "overflow": "explode"}, "explode"),
        ({"capacity": 1, "priority": lambda m: 0}, "not both"),
    ],
)
def test_mailbox_refuses_nonsense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Mailbox(**arguments)


# -- in a system -------------------------------------------------------------------------------------------------------


async def busy(ref: ActorRef[Lab]) -> asyncio.Event:
    """Occupy the actor until the event is set."""
    gate = asyncio.Event()
    started = asyncio.Event()

    async def wait(_: Lab) -> None:
        started.set()
        await gate.wait()

    ref.tell(Do(call=wait))
    await started.wait()
    return gate


async def test_mailbox_is_unbounded_by_default(system: ActorSystem) -> None:
    """MailboxConfigSpec: default mailbox is unbounded."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    for i in range(10_000):
        ref.tell(Note(text=str(i)))
    assert ref.queued >= 9_999
    await barrier(ref)
    assert journal[1:] == [str(i) for i in range(10_000)]


async def test_bounded_by_props(system: ActorSystem) -> None:
    """ActorMailboxSpec: get a bounded message queue when it is only configured on the props."""
    ref = system.actor_of(Props(Lab).with_mailbox(Mailbox(2)))
    gate = await busy(ref)
    for _ in range(2):
        ref.tell(Note(text="x"))
    with pytest.raises(MailboxFull):
        ref.tell(Note(text="x"))
    gate.set()


@pytest.mark.parametrize("policy, survivors", [("drop_new", ["1", "2"]), ("drop_old", ["2", "3"])])
async def test_dropped_messages_are_dead_letters_and_fail_askers(
    system: ActorSystem, policy: Any, survivors: list[str]
) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal).with_mailbox(Mailbox(2, policy)))
    gate = await busy(ref)
    replies = [ref.ask(Do(call=lambda a, i=i: a.write(str(i)))) for i in (1, 2, 3)]
    gate.set()
    results = await asyncio.gather(*replies, return_exceptions=True)
    assert [type(r) for r in results].count(MailboxFull) == 1
    assert journal[1:] == survivors
    assert system.dead_letters.total == 1


async def test_stop_and_watch_work_on_a_full_mailbox(system: ActorSystem) -> None:
    """Row 27: stop, watch and restart use the system lane."""
    journal: list[str] = []

    class Mourner(Lab):
        @Terminated.handles
        def gone(self, m: Terminated) -> None:
            self.write("gone")

    watcher = system.actor_of(Props(Mourner, journal).with_mailbox(Mailbox(1)))
    target = system.actor_of(Props(Lab).with_mailbox(Mailbox(1)))
    await barrier(watcher)
    await watcher.ask(Do(call=lambda a: a.watch(target)))
    gates = [await busy(ref) for ref in (watcher, target)]
    for ref in (watcher, target):
        ref.tell(Note(text="fills the mailbox"))
    target.stop()
    gates[1].set()
    await target.stopped()
    gates[0].set()
    await until(lambda: "gone" in journal)


async def test_offer_waits_for_room_first_come_first_served(system: ActorSystem) -> None:
    """Back-pressure without blocking a thread."""
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal).with_mailbox(Mailbox(1)))
    gate = await busy(ref)
    offers = [asyncio.create_task(ref.offer(Note(text=str(i)))) for i in range(5)]
    await turns()
    assert [task.done() for task in offers] == [True] + [False] * 4
    assert ref.queued == 1
    gate.set()
    await asyncio.gather(*offers)
    await until(lambda: len(journal) == 6)
    assert journal == ["start", "0", "1", "2", "3", "4"]


async def test_offer_times_out_and_leaves_nothing_behind(system: ActorSystem, clock: ManualClock) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal).with_mailbox(Mailbox(1)))
    gate = await busy(ref)
    await ref.offer(Note(text="first"))
    late = asyncio.create_task(ref.offer(Note(text="late"), timeout=1.0))
    await turns()
    clock.advance(1.0)
    with pytest.raises(MailboxFull, match="no room for Note within 1 s"):
        await late
    gate.set()
    await until(lambda: ref.queued == 0)
    await barrier(ref)
    assert journal == ["start", "first"]


async def test_cancelled_offer_is_withdrawn(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal).with_mailbox(Mailbox(1)))
    gate = await busy(ref)
    await ref.offer(Note(text="first"))
    waiting = asyncio.create_task(ref.offer(Note(text="cancelled")))
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    await until(lambda: ref.queued == 0)
    await barrier(ref)
    assert journal == ["start", "first"]


async def test_offer_fails_when_the_actor_stops(system: ActorSystem) -> None:
    ref = system.actor_of(Props(Lab).with_mailbox(Mailbox(1)))
    gate = await busy(ref)
    await ref.offer(Note(text="first"))
    waiting = asyncio.create_task(ref.offer(Note(text="second")))
    await turns()
    ref.stop()
    gate.set()
    with pytest.raises(ActorStopped):
        await waiting
    with pytest.raises(ActorStopped):
        await ref.offer(Note(text="third"))


async def test_offer_to_an_unbounded_mailbox_is_a_tell(system: ActorSystem) -> None:
    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal))
    await ref.offer(Note(text="x"))
    await barrier(ref)
    assert journal == ["start", "x"]


class Ball(Msg["Player"]):
    hits: int


class Player(Lab):
    other: ActorRef["Player"] | None = None
    limit = 500

    @Ball.handles
    async def hit(self, m: Ball) -> None:
        if m.hits == self.limit:
            self.write("end")
        elif self.other is not None:
            await self.other.offer(Ball(hits=m.hits + 1))


async def test_pathological_ping_pong(system: ActorSystem) -> None:
    """ActorMailboxSpec: pathological ping-pong with tiny mailboxes neither loses the ball nor dead-locks."""
    journal: list[str] = []
    props = Props(Player, journal).with_mailbox(Mailbox(1))
    a, b = system.actor_of(props), system.actor_of(props)
    await a.ask(Do(call=lambda p: setattr(p, "other", b)))
    await b.ask(Do(call=lambda p: setattr(p, "other", a)))
    a.tell(Ball(hits=0))
    await until(lambda: "end" in journal)


async def test_priority_mailbox_puts_control_messages_first(system: ActorSystem) -> None:
    """ControlAwareDispatcherSpec: deliver control messages first."""
    journal: list[str] = []
    mailbox = Mailbox(priority=lambda m: 0 if getattr(m, "text", "").startswith("control") else 1)
    ref = system.actor_of(Props(Lab, journal).with_mailbox(mailbox))
    gate = await busy(ref)
    for text in ("a", "control 1", "b", "control 2"):
        ref.tell(Note(text=text))
    gate.set()
    await barrier(ref)
    assert journal[1:] == ["control 1", "control 2", "a", "b"]


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fine_switching() -> Iterator[None]:
    """Switch threads as often as possible, to find races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.usefixtures("fine_switching")
async def test_order_per_sender_from_many_threads(pinned: bool) -> None:
    """ActorModelSpec: order per sender and receiver, also across threads; nothing is lost."""
    async with ActorSystem("test") as system:
        props = Props(Lab, [])
        ref = system.actor_of(props.with_dispatcher(Pinned("other", switch_interval=None)) if pinned else props)
        seen: list[tuple[int, int]] = []

        def send(sender: int) -> None:
            for i in range(2000):
                ref.tell(Do(call=lambda _, i=i: seen.append((sender, i))))

        await asyncio.to_thread(together, send, [(n,) for n in range(4)])
        await barrier(ref)
        assert len(seen) == 8000
        for sender in range(4):
            assert [i for s, i in seen if s == sender] == list(range(2000))


@pytest.mark.usefixtures("fine_switching")
async def test_bound_holds_with_senders_on_many_threads() -> None:
    """Every message is handled or refused, and there are never more than the bound."""
    async with ActorSystem("test") as system:
        ref = system.actor_of(Props(Lab).with_mailbox(Mailbox(10)))
        gate = await busy(ref)
        outcomes: list[bool] = []

        def send() -> None:
            for _ in range(200):
                try:
                    ref.tell(Note(text="x"))
                    outcomes.append(True)
                except MailboxFull:
                    outcomes.append(False)

        await asyncio.to_thread(together, send, [()] * 4)
        assert (outcomes.count(True), len(outcomes), ref.queued) == (10, 800, 10)
        gate.set()


@pytest.mark.usefixtures("fine_switching")
async def test_no_message_is_lost_when_the_actor_stops_meanwhile() -> None:
    """Promise 1: handled or dead-lettered, never silently gone; each asker gets an answer or an error."""
    for _ in range(20):
        async with ActorSystem("test") as system:
            handled: list[int] = []
            ref = system.actor_of(Props(Lab).with_dispatcher(Pinned("other", switch_interval=None)))

            def send(ref: ActorRef[Lab] = ref, handled: list[int] = handled) -> int:
                for _ in range(200):
                    ref.tell(Do(call=lambda _: handled.append(1)))
                return 200

            sending = [asyncio.create_task(asyncio.to_thread(send)) for _ in range(2)]
            asks = [ref.ask(Do(call=lambda _, handled=handled: handled.append(1))) for _ in range(50)]
            ref.stop()
            sent = sum([await task for task in sending]) + len(asks)
            await ref.stopped()
            results = await asyncio.gather(*asks, return_exceptions=True)
            assert all(r is None or isinstance(r, ActorStopped) for r in results)
            assert len(handled) + system.dead_letters.counts.get("stopped", 0) == sent


async def test_message_that_comes_while_the_actor_falls_asleep_is_not_overlooked(system: ActorSystem) -> None:
    """The race of the wake-up protocol, made certain: another thread appends after the owner looked and before it
    declares itself asleep; it reads ``awake`` and so does not wake anybody.
    """

    class Racing(deque[Any]):
        hook: Callable[[], None] | None = None

        def __bool__(self) -> bool:
            seen = len(self) > 0
            if not seen and self.hook is not None:
                hook, self.hook = self.hook, None
                hook()
            return seen

    class RacingLane(UnboundedLane):
        def __init__(self) -> None:
            super().__init__()
            self.items = Racing()
            self.push, self.pop = self.items.append, self.items.popleft

    class RacingMailbox(Mailbox):
        def lane(self, path: str, rejected: Any) -> UserLane:
            return RacingLane()

    journal: list[str] = []
    ref = system.actor_of(Props(Lab, journal).with_mailbox(RacingMailbox()))
    lane = cell_of(ref).lane
    lane.items.hook = lambda: ref.tell(Note(text="raced"))
    await until(lambda: "raced" in journal)
