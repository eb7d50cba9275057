"""Mistakes of first-time users raise at once, and the error says what to write instead."""

import asyncio
from typing import Any

import pytest
from actor_lab import Do, Lab, Note, child_of, failing, turns

from callboard.actors import (
    Actor,
    ActorRef,
    ActorStopped,
    ActorSystem,
    AllForOne,
    Directive,
    Mailbox,
    Msg,
    OneForOne,
    Props,
)
from callboard.actors._runtime.table import handler_names


class Add(Msg["Lab"]):
    n: int


class AddTwice(Add):
    times: int = 2


def test_a_message_takes_keywords_and_names_them() -> None:
    with pytest.raises(TypeError, match=r"^Add takes keywords: n$"):
        Add(5)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"^AddTwice takes keywords: n, times$"):
        AddTwice(5, 2)  # type: ignore[misc]
    assert AddTwice(n=5).times == 2


async def test_a_method_of_the_actor_names_the_message_to_send(system: ActorSystem) -> None:
    lab: Any = system.actor_of(Props(Lab), "lab")
    with pytest.raises(
        AttributeError, match=r"note is a method of the actor \(Lab\).*use `ref\.tell\(Note\(\.\.\.\)\)`"
    ):
        lab.note("text")
    with pytest.raises(AttributeError, match=r"use `await ref\.ask\(Do\(\.\.\.\)\)`"):
        lab.do()
    with pytest.raises(AttributeError, match="with a message that it handles"):
        lab.write("text")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        lab.nothing()
    assert isinstance(lab, ActorRef)
    assert type(lab).__name__ == "ActorRef"
    assert await lab.ask(Do(call=lambda actor: actor.ref)) is lab


async def test_ask_without_a_timeout_has_no_limit(system: ActorSystem, clock: Any) -> None:
    release = asyncio.Event()

    async def wait(_: Lab) -> str:
        await release.wait()
        return "late"

    lab = system.actor_of(Props(Lab), "lab")
    reply = lab.ask(Do(call=wait), timeout=None)
    await turns()
    clock.advance(10_000.0)
    assert not reply.done()
    release.set()
    assert await reply == "late"
    assert await asyncio.to_thread(lab.ask_blocking, Do(call=lambda _: 7), timeout=None) == 7
    with pytest.raises(ValueError, match="must be positive"):
        lab.ask(Do(call=lambda _: 1), timeout=0)


async def test_offer_without_a_timeout_has_no_limit(system: ActorSystem, clock: Any) -> None:
    release = asyncio.Event()
    lab = system.actor_of(Props(Lab).with_mailbox(Mailbox(capacity=1)), "lab")
    first = lab.ask(Do(call=lambda _: release.wait()), timeout=None)
    await asyncio.sleep(0)
    lab.tell(Note(text="fills the mailbox"))
    offered = asyncio.ensure_future(lab.offer(Note(text="waits"), timeout=None))
    await asyncio.sleep(0)
    clock.advance(10_000.0)
    release.set()
    await first
    await offered


async def test_a_stopped_actor_says_why(system: ActorSystem) -> None:
    asked = system.actor_of(Props(Lab), "asked")
    asked.stop()
    with pytest.raises(ActorStopped, match=r"/test/asked is stopped \(it was asked to stop\)"):
        await asked.ask(Do(call=lambda _: 1))
    parent = system.actor_of(Props(Lab, None, OneForOne({ValueError: Directive.STOP})), "parent")
    failed = await child_of(parent, Props(Lab), "child")
    await failing(failed, ValueError("7 is odd"))
    await failed.stopped()
    with pytest.raises(
        ActorStopped, match=r"/test/parent/child is stopped \(it failed: ValueError\('7 is odd'\)\)"
    ) as e:
        await failed.ask(Do(call=lambda _: 1))
    assert isinstance(e.value.__cause__, ValueError)
    with pytest.raises(ActorStopped, match="it failed: ValueError"):
        await failed.offer(Note(text="late"))


async def test_an_actor_of_a_stopped_system_says_so() -> None:
    async with ActorSystem("ended") as system:
        lab = system.actor_of(Props(Lab), "lab")
    with pytest.raises(ActorStopped, match="the system ended stops"):
        await lab.ask(Do(call=lambda _: 1))


def test_two_handlers_of_one_message_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Both: first and second both handle Add; a message has one handler"):

        class Both(Actor):
            @Add.handles
            def first(self, m: Add) -> None: ...

            @Add.handles
            def second(self, m: Add) -> None: ...


def test_a_subclass_may_replace_a_handler() -> None:
    class One(Actor):
        @Add.handles
        def first(self, m: Add) -> None: ...

        same = first

    class Two(One):
        @Add.handles
        def second(self, m: Add) -> None: ...

    assert One is not Two


@pytest.mark.parametrize("strategy", [OneForOne, AllForOne])
def test_rules_are_directives(strategy: Any) -> None:
    with pytest.raises(TypeError, match=r"the rule for ValueError is 'restart'; use one of Directive\.RESUME, "):
        strategy({ValueError: "restart"})
    with pytest.raises(TypeError, match="'ValueError' is not an exception class"):
        strategy({"ValueError": Directive.STOP})
    with pytest.raises(TypeError, match="default is 'stop'"):
        strategy(default="stop")
    with pytest.raises(TypeError, match="the rules returned 'stop'; return one of"):
        strategy(lambda _: "stop").directive(ValueError())


def test_props_of_an_instance_are_refused() -> None:
    with pytest.raises(TypeError, match=r"an existing Lab: pass the class and its arguments, Props\(Lab"):
        Props(Lab())  # type: ignore[arg-type, var-annotated]


def test_a_class_that_changes_while_its_handlers_are_found() -> None:
    """Another thread may cache something in a class at any time (a table, annotations, abstract methods)."""

    class Caches:
        def __getattr__(self, name: str) -> int:
            setattr(Cached, f"cached_{name}", None)
            raise AttributeError(name)

    class Cached(Actor):
        value = None

        @Add.handles
        def on_add(self, m: Add) -> None: ...

    Cached.value = Caches()  # type: ignore[assignment]
    assert handler_names(Cached) == {Add: "on_add"}


def test_a_plain_with_names_async_with() -> None:
    system: Any = ActorSystem("misuse")
    with (
        pytest.raises(TypeError, match=r"ActorSystem is for asyncio: use `async with ActorSystem\(\.\.\.\) as system`"),
        system,
    ):
        pass
