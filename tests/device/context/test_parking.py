"""Parking keeps the order of whatever has something to do with each other, and lets all else go on."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.device.context.parking import Holds, Parking

BUFFERS = st.frozensets(st.integers(0, 4), max_size=2)
MESSAGE = st.tuples(BUFFERS, BUFFERS, st.sampled_from(["a", "b", "c"]), st.sets(st.integers(0, 2), max_size=1))


@settings(max_examples=200)
@given(st.lists(MESSAGE, max_size=30), st.lists(st.integers(0, 2), max_size=12))
def test_conflicting_messages_keep_their_order(messages: list[Any], openings: list[int]) -> None:
    """A message waits for a gate of its own, or behind others; gates open one after the other."""
    parking = Parking()
    opened: set[int] = set()
    admitted: list[int] = []

    def look(number: Any) -> None:
        reads, writes, stem, gates = messages[number]
        if gates - opened or (parking.active and parking.blocks(reads, writes, stem)):
            parking.park(number, look, reads, writes, stem)
        else:
            admitted.append(number)

    for number in range(len(messages)):
        look(number)
        if openings and number % 3 == 0:
            opened.add(openings.pop())
            parking.retry()
    for gate in range(3):
        opened.add(gate)
        parking.retry()
    assert sorted(admitted) == list(range(len(messages)))  # none is lost, none comes twice
    assert not parking.active
    assert len(parking) == 0
    place = {number: at for at, number in enumerate(admitted)}
    for late, (reads, writes, stem, _) in enumerate(messages):
        for early, (early_reads, early_writes, early_stem, _) in enumerate(messages[:late]):
            if stem == early_stem or writes & (early_reads | early_writes) or reads & early_writes:
                assert place[early] < place[late]


def test_what_has_nothing_to_do_with_the_parked_goes_on() -> None:
    parking = Parking()
    parking.park(1, lambda m: None, [1], [2], "a")  # type: ignore[arg-type]
    assert not parking.blocks([1], [], "b")  # reads what is read
    assert parking.blocks([2], [], "b")
    assert parking.blocks([], [1], "b")
    assert parking.blocks([], [3], "a")
    assert parking.blocks([], [1], None)
    assert not parking.blocks([], [3], None)


def test_while_memory_is_freed_only_frees_go_on() -> None:
    parking = Parking()
    parking.closed = True
    assert parking.active
    assert parking.blocks([], [], "a")
    assert not parking.blocks([], [7], None)


def test_holds_of_turns_stand_in_the_way_of_others_only() -> None:
    parking, own = Parking(), Holds()
    for holds in (parking.held, own):
        holds.add([1], [2])
    parking.held.add([1], [])  # another actor's turn reads it, too
    assert parking.active
    assert parking.blocks([2], [], "a")
    assert parking.blocks([], [1], "a")
    assert not parking.blocks([1], [], "a")
    assert not parking.blocks([2], [2], "a", own)
    assert parking.blocks([], [1], "a", own)
    parking.held.remove([1], [2])
    parking.held.remove([1], [])
    assert not parking.active
