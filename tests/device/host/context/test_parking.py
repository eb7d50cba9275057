"""Parking keeps the order of whatever has something to do with each other, and lets all else go on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.device.host.context.parking import NOTHING, ROOM, Holds, Parking

ACTORS = ("x", "y")


class Message(NamedTuple):
    """What is admitted.

    Attributes:
        lib: A library, several (of a recording), an actor of :data:`ACTORS` (its turns hold their buffers until they
            end), ``ROOM`` (it only allocates), or None: a free.
        gate: What it waits for by itself.
        hungry: It finds no memory, once.
        fence: It stays behind all that is parked; ``"between"``: all but frees stay behind it, too.
    """

    reads: frozenset[int]
    writes: frozenset[int]
    lib: str | tuple[str, ...] | None
    gate: int | None = None
    hungry: bool = False
    fence: Any = None


def libs(lib: str | tuple[str, ...] | None) -> set[str]:
    return set(lib) if isinstance(lib, tuple) else {lib} if lib else set()


class Naive:
    """The model: whatever ends, all that is parked is admitted again, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self.held = Holds()
        self.closed = False

    def blocks(self, reads: Any, writes: Any, lib: Any, own: Holds = NOTHING, fence: Any = None) -> bool:
        if (fence and self.entries) or (
            lib not in (None, ROOM) and any(entry[5] == "between" for entry in self.entries)
        ):
            return True
        if lib is not None and (self.closed or any(libs(lib) & libs(entry[4]) for entry in self.entries)):
            return True
        written = set().union(*(entry[3] for entry in self.entries))
        touched = written.union(*(entry[2] for entry in self.entries))
        held = self.held
        return any(b in written or held.writes[b] > own.writes[b] for b in reads) or any(
            b in touched or held.writes[b] > own.writes[b] or held.reads[b] > own.reads[b] for b in writes
        )

    def park(
        self,
        message: Any,
        again: Any,
        reads: Any,
        writes: Any,
        lib: Any,
        own: Any = None,
        until: Any = None,
        fence: Any = None,
    ) -> None:
        self.entries.append((message, again, reads, writes, lib, fence))

    def retry(self) -> None:
        entries, self.entries = self.entries, []
        for message, again, *_ in entries:
            again(message)

    def hold(self, reads: Any, writes: Any, own: Holds) -> None:
        self.held.add(reads, writes)
        own.add(reads, writes)

    def release(self, reads: Any, writes: Any, own: Holds) -> None:
        self.held.remove(reads, writes)
        own.remove(reads, writes)
        self.retry()

    def notify(self, what: object) -> None:
        self.retry()

    def open(self) -> None:
        self.closed = False
        self.retry()


class Host:
    """Admits messages by their numbers, with a parking of either kind."""

    def __init__(self, parking: Any, messages: list[Message]) -> None:
        self.parking = parking
        self.messages = messages
        self.opened: set[int] = set()
        self.fed: set[int] = set()
        self.own = {actor: Holds() for actor in ACTORS}
        self.running: list[int] = []
        self.admitted: list[int] = []
        self.looks = 0

    def poll(self, number: int) -> None:
        self.looks += 1
        parking, message = self.parking, self.messages[number]
        reads, writes, lib, gate, hungry, fence = message
        own = self.own.get(lib, NOTHING) if isinstance(lib, str) else NOTHING
        if gate is not None and gate not in self.opened:
            parking.park(number, self.poll, reads, writes, lib, own, until=gate, fence=fence)
        elif parking.blocks(reads, writes, lib, own, fence=fence):
            parking.park(number, self.poll, reads, writes, lib, own, fence=fence)
        elif hungry and number not in self.fed:
            self.fed.add(number)
            parking.closed = True
            parking.park(number, self.poll, reads, writes, lib, own, fence=fence)
        else:
            self.admitted.append(number)
            if isinstance(lib, str) and lib in self.own:
                parking.hold(reads, writes, own)
                self.running.append(number)

    def event(self, event: Any) -> None:
        """``("gate", n)``, ``("end", n)`` of the n-th call that runs, or ``("memory", …)``."""
        kind, n = event
        if kind == "gate":
            self.opened.add(n)
            self.parking.notify(n)
        elif kind == "memory":
            self.parking.open()
        elif self.running:
            self.end(n % len(self.running))

    def end(self, at: int) -> None:
        message = self.messages[self.running.pop(at)]
        assert isinstance(message.lib, str)
        self.parking.release(message.reads, message.writes, self.own[message.lib])


BUFFERS = st.frozensets(st.integers(0, 4), max_size=3)
MESSAGE = st.builds(
    Message,
    BUFFERS,
    BUFFERS,
    st.sampled_from(["a", "b", "", ("a", "b"), ("b", "c"), *ACTORS, ROOM, None]),
    st.one_of(st.none(), st.none(), st.integers(0, 2)),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([None, None, None, None, "behind", "between"]),
).map(lambda m: m if m.lib is not None else m._replace(gate=None, hungry=False, fence=None))
EVENT = st.tuples(st.sampled_from(["gate", "end", "end", "memory"]), st.integers(0, 2))


@settings(max_examples=400)
@given(st.lists(st.one_of(MESSAGE, EVENT), max_size=40))
def test_what_goes_on_and_when_is_what_admitting_all_again_would_give(script: list[Any]) -> None:
    messages = [step for step in script if isinstance(step, Message)]
    hosts = [Host(Parking(), messages), Host(Naive(), messages)]
    number = 0
    for step in [*script, ("gate", 0), ("gate", 1), ("gate", 2)]:
        for host in hosts:
            if isinstance(step, Message):
                host.poll(number)
            else:
                host.event(step)
        number += isinstance(step, Message)
        assert hosts[0].admitted == hosts[1].admitted
    while hosts[0].running or hosts[0].parking.closed:
        for host in hosts:
            host.event(("memory", 0) if host.parking.closed else ("end", 0))
        assert hosts[0].admitted == hosts[1].admitted
    admitted, parking = hosts[0].admitted, hosts[0].parking
    assert sorted(admitted) == list(range(len(messages)))  # none is lost, none comes twice
    assert not parking.active
    indexes = (parking._users, parking._last, parking._until, parking._held_from_readers, parking._held_from_writer)
    assert not any(indexes)
    assert not any((parking._ready, parking._ready_frees, parking._fence))
    place = {number: at for at, number in enumerate(admitted)}
    for late, (reads, writes, lib, _, _, fence) in enumerate(messages):
        for early, (early_reads, early_writes, early_lib, _, _, early_fence) in enumerate(messages[:late]):
            fenced = fence or (lib not in (None, ROOM) and early_fence == "between")
            clash = libs(lib) & libs(early_lib) or writes & (early_reads | early_writes) or reads & early_writes
            if fenced or clash:
                assert place[early] < place[late]


def op(reads: list[int], writes: list[int], lib: str | None = "", gate: int | None = None) -> Message:
    return Message(frozenset(reads), frozenset(writes), lib, gate)


MANY = 2000
CROWDS: dict[str, Callable[[int], Message]] = {
    "readers of a held buffer": lambda n: op([0], []),
    "writers of a held buffer": lambda n: op([], [0]),
    "readers and writers of a held buffer": lambda n: op([0], [1] if n % 2 else [0]),
    "calls of an actor": lambda n: op([0], [], "y"),
    "ops of one library": lambda n: op([0] if n == 0 else [], [], "a"),
    "frees": lambda n: op([], [0, 10 + n], None),
    "ops whose plan is not there": lambda n: op([0], [], "a", gate=1),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_what_is_parked_is_admitted_again_when_what_it_waits_for_has_ended(crowd: str) -> None:
    """Ends of calls that have nothing to do with it cost it nothing, and its own costs each message a few looks."""
    messages = [op([], [0], "x"), *map(CROWDS[crowd], range(MANY)), *[op([], [5], "x")] * 300]
    host = Host(Parking(), messages)
    for number in range(len(messages)):
        host.poll(number)
    assert len(host.parking) == MANY
    host.looks = 0
    while len(host.running) > 1:
        host.end(1)
    host.event(("gate", 1))
    assert host.looks <= 1
    host.end(0)
    while host.running:
        host.end(0)
    assert len(host.admitted) == len(messages)
    assert host.looks <= 3 * MANY


def test_memory_that_is_short_again_and_again_touches_what_comes_next_only() -> None:
    messages = [op([], [n], "ab"[n % 2])._replace(hungry=True) for n in range(MANY)]
    host = Host(Parking(), messages)
    for number in range(MANY):
        host.poll(number)
    while host.parking.closed:
        host.event(("memory", 0))
    assert host.admitted == list(range(MANY))
    assert host.looks <= 4 * MANY


def test_what_has_nothing_to_do_with_the_parked_goes_on() -> None:
    parking = Parking()
    parking.park(1, lambda m: None, [1], [2], "a", until="gate")  # type: ignore[arg-type]
    assert not parking.blocks([1], [], "b")  # reads what is read
    assert parking.blocks([2], [], "b")
    assert parking.blocks([], [1], "b")
    assert parking.blocks([], [3], "a")
    assert not parking.blocks([], [3], "")
    assert parking.blocks([], [1], None)
    assert not parking.blocks([], [3], None)


def test_while_memory_is_freed_only_frees_go_on() -> None:
    parking = Parking()
    parking.closed = True
    assert parking.active
    assert parking.blocks([], [], "a")
    assert parking.blocks([], [], "")
    assert not parking.blocks([], [7], None)


def test_holds_of_turns_stand_in_the_way_of_others_only() -> None:
    parking, own, other = Parking(), Holds(), Holds()
    parking.hold([1], [2], own)
    parking.hold([1], [], other)  # another actor's call reads it, too
    assert parking.active
    assert parking.blocks([2], [], "a")
    assert parking.blocks([], [1], "a")
    assert not parking.blocks([1], [], "a")
    assert not parking.blocks([2], [2], "a", own)
    assert parking.blocks([], [1], "a", own)
    parking.release([1], [2], own)
    parking.release([1], [], other)
    assert not parking.active
