"""The stash."""

import pytest
from actor_lab import Do, Lab, barrier, failing, until

from callboard.actors import (
    ActorStopped,
    ActorSystem,
    Mailbox,
    Msg,
    Props,
    Request,
    StashError,
    StashOverflow,
)


class Open(Msg["Door"]):
    pass


class Knock(Request["Door", str]):
    name: str


class Door(Lab):
    """Stashes while it is closed."""

    stash_capacity = 3

    def __init__(self, journal: list[str] | None = None) -> None:
        super().__init__(journal)
        self.open = False

    @Open.handles
    def on_open(self, m: Open) -> None:
        self.open = True
        self.write(f"unstashed {self.unstash_all()}")

    @Knock.handles
    def knock(self, m: Knock) -> str:
        if not self.open:
            self.stash()
            return "not sent, the message is stashed"
        self.write(m.name)
        return f"welcome {m.name}"


async def test_stashed_messages_come_back_in_order_and_first(system: ActorSystem) -> None:
    """ActorWithStashSpec: stash messages; typed StashSpec: unstash in order, in front of later messages."""
    journal: list[str] = []
    ref = system.actor_of(Props(Door, journal))
    replies = [ref.ask(Knock(name=n)) for n in "ab"]
    ref.tell(Open())
    replies.append(ref.ask(Knock(name="c")))
    assert [await reply for reply in replies] == ["welcome a", "welcome b", "welcome c"]
    assert journal == ["start", "unstashed 2", "a", "b", "c"]


async def test_stashing_twice_is_an_error(system: ActorSystem) -> None:
    """ActorWithStashSpec: fail if the same message is stashed twice."""
    ref = system.actor_of(Props(Lab))
    errors: list[type[BaseException]] = []

    def twice(actor: Lab) -> str | None:
        if errors:
            return "came back once"
        actor.stash()
        try:
            actor.stash()
        except StashError as error:
            errors.append(type(error))
        actor.unstash_all()
        return None

    assert await ref.ask(Do(call=twice)) == "came back once"
    assert errors == [StashError]


async def test_stash_without_a_message_is_an_error(system: ActorSystem) -> None:
    caught: list[StashError] = []

    class Eager(Lab):
        def pre_start(self) -> None:
            try:
                self.stash()
            except StashError as error:
                caught.append(error)

    await barrier(system.actor_of(Props(Eager)))
    assert len(caught) == 1


async def test_unstash_of_an_empty_stash(system: ActorSystem) -> None:
    """typed StashSpec: unstash all of an empty stash does nothing."""
    ref = system.actor_of(Props(Lab))
    assert await ref.ask(Do(call=lambda a: a.unstash_all())) == 0


async def test_stash_returns_to_the_mailbox_before_a_restart(system: ActorSystem) -> None:
    """ActorWithStashSpec: process stashed messages after restart."""
    journal: list[str] = []
    ref = system.actor_of(Props(Door, journal))
    reply = ref.ask(Knock(name="a"))
    await failing(ref, ValueError("x"))
    ref.tell(Open())
    assert await reply == "welcome a"
    assert journal == ["start", "stop", "start", "unstashed 1", "a"]


async def test_stash_at_stop_fails_its_askers(system: ActorSystem) -> None:
    """Row 8: to the dead letters when the actor stops."""
    ref = system.actor_of(Props(Door))
    reply = ref.ask(Knock(name="a"))
    await barrier(ref)
    await ref.stop_and_wait()
    with pytest.raises(ActorStopped):
        await reply
    assert system.dead_letters.counts == {"stopped": 1}


async def test_overflow_is_a_failure_with_its_own_class(system: ActorSystem) -> None:
    """ActorWithBoundedStashSpec: throw a StashOverflowException in case of a stash capacity violation."""
    ref = system.actor_of(Props(Door))
    waiting = [ref.ask(Knock(name=n)) for n in "abc"]
    with pytest.raises(StashOverflow, match="3 stashed"):
        await ref.ask(Knock(name="d"))
    ref.tell(Open())
    assert len([await w for w in waiting]) == 3


async def test_stash_goes_back_beyond_the_bound_of_the_mailbox(system: ActorSystem) -> None:
    """A bounded mailbox bounds senders; the actor's own messages come back in any case."""
    journal: list[str] = []
    ref = system.actor_of(Props(Door, journal).with_mailbox(Mailbox(1)))
    await barrier(ref)
    replies = []
    for name in "abc":
        replies.append(ref.ask(Knock(name=name)))
        await until(lambda: ref.queued == 0)
    ref.tell(Open())
    assert [await reply for reply in replies] == ["welcome a", "welcome b", "welcome c"]


async def test_failure_after_unstash_loses_only_the_failing_message(system: ActorSystem) -> None:
    """typed SupervisionSpec: failure in unstash keeps the other messages."""
    journal: list[str] = []

    class Picky(Door):
        @Knock.handles
        def knock(self, m: Knock) -> str:
            if self.open and m.name == "bad":
                raise ValueError("bad")
            if m.name == "c" and not self.open:
                self.open = True
            return super().knock(m)

    ref = system.actor_of(Props(Picky, journal))
    replies = [ref.ask(Knock(name=n)) for n in ("bad", "b")]
    ref.tell(Open())
    with pytest.raises(ValueError, match="bad"):
        await replies[0]
    ref.tell(Open())
    assert await replies[1] == "welcome b"
