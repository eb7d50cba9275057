"""Generators that are used in turn go on where their last fills left them; what is drawn again is counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu.rng import mrg32k3a, mt19937, mtgp32, xorwow
from callboard.backends.cpu.rng.library import CpuRng
from callboard.backends.cpu.rng.states import States
from callboard.kernel.rng import RngFillBits, RngFillUniform
from callboard.testing.session import LibrarySession

COUNTED: dict[tuple[str, str], tuple[Any, str]] = {
    ("mt19937", "default"): (mt19937.Mt19937, "__init__"),
    ("mtgp32", "default"): (mtgp32.Mtgp32, "__init__"),
    ("mtgp32", "legacy"): (mtgp32.Mtgp32, "__init__"),
    ("xorwow", "default"): (xorwow, "times"),
    ("xorwow", "seeded"): (xorwow, "times"),
    ("mrg32k3a", "default"): (mrg32k3a, "_times"),
    ("mrg32k3a", "legacy"): (mrg32k3a, "_times"),
}
"""What a generator calls to reach a place from the beginning of its stream, and not to go on."""
every_stream = pytest.mark.parametrize("stream", COUNTED, ids="-".join)


@pytest.fixture
def redraws(stream: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Redraws since the last call."""
    calls: list[None] = []
    owner, name = COUNTED[stream]
    original = getattr(owner, name)

    def counted(*arguments: Any, **fields: Any) -> Any:
        calls.append(None)
        return original(*arguments, **fields)

    monkeypatch.setattr(owner, name, counted)

    def since() -> int:
        count = len(calls)
        calls.clear()
        return count

    return since


def fill(session: LibrarySession, stream: tuple[str, str], seed: int, position: int, count: int) -> Any:
    kind, ordering = stream
    op = RngFillBits(out=session.empty(count, "u32"), kind=kind, ordering=ordering, seed=seed, position=position)  # type: ignore[arg-type]
    return session.get(session.submit(op))


@every_stream
@pytest.mark.parametrize("seeds", [range(6), (5, 5, 5)], ids=["of many seeds", "of one seed"])
def test_generators_in_turn_are_not_drawn_again(stream: Any, seeds: Any, redraws: Callable[[], int]) -> None:
    """Words are those of one fill."""
    begin, first, count = 100_000, 90_000, 1000
    with LibrarySession("cpu") as session:
        for seed in seeds:
            fill(session, stream, seed, begin, first)
        assert redraws()
        begin += first
        rounds = [[fill(session, stream, seed, begin + i * count, count) for seed in seeds] for i in range(3)]
        assert redraws() == 0
        for i in (0, len(seeds) - 1):
            got = np.concatenate([words[i] for words in rounds])
            np.testing.assert_array_equal(got, fill(session, stream, seeds[i], begin, 3 * count))


@every_stream
def test_generators_of_one_seed_at_different_places(stream: Any, redraws: Callable[[], int]) -> None:
    with LibrarySession("cpu") as session:
        places = [0, 200_000]
        whole = fill(session, stream, 7, 0, 400_000)
        for _ in range(2):
            redraws()
            for i, place in enumerate(places):
                got = fill(session, stream, 7, place, 90_001)
                np.testing.assert_array_equal(got, whole[place : place + 90_001])
                places[i] += 90_001
        assert redraws() == 0


def test_a_twister_that_leaves_words_out_passes_over_these_only(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []
    discard = mt19937.Mt19937.discard
    monkeypatch.setattr(mt19937.Mt19937, "discard", lambda self, count: (passed.append(count), discard(self, count)))
    stream = ("mt19937", "default")
    with LibrarySession("cpu") as session:
        for seed in (1, 2):
            fill(session, stream, seed, 1_000_000, 11)
        for seed in (1, 2):  # an element of 64 bits lies at an even place
            op = RngFillUniform(out=session.empty(4, "f64"), kind="mt19937", seed=seed, position=1_000_012)
            session.submit(op)
        fill(session, stream, 1, 1_000_000, 5)
    assert passed == [1_000_000, 1_000_000, 1, 1, 1_000_000]


class Sized:
    """A state of so many bytes."""

    def __init__(self, nbytes: int, name: str = "") -> None:
        self.nbytes = nbytes
        self.name = name

    def copy(self) -> "Sized":
        return Sized(self.nbytes, self.name + "'")


def test_the_least_recently_used_states_are_dropped() -> None:
    states = States(max_bytes=100, max_states=3)
    for seed in range(3):
        states.keep(seed, 10, Sized(40))
    assert (len(states), states.nbytes) == (2, 80)
    assert states.take(0, 10) is None
    states.keep(1, 10, Sized(40))  # another generator there; used last
    states.keep(3, 10, Sized(20))
    states.keep(4, 10, Sized(1))
    assert states.take(2, 10) is None
    assert (len(states), states.nbytes) == (3, 61)
    states.keep(5, 10, Sized(200))
    assert (len(states), states.nbytes) == (0, 0), "one that is too large leaves nothing"


def test_every_generator_has_its_own_state() -> None:
    states = States()
    for name in "ab":
        states.keep("stream", 10, Sized(8, name))
    taken = [states.take("stream", 10) for _ in range(3)]
    assert [x and x.name for x in taken] == ["a'", "a", None]
    assert (len(states), states.nbytes) == (0, 0)


def test_the_nearest_state_before_a_place() -> None:
    states = States()
    for place in (10, 30, 20):
        states.keep("stream", place, Sized(1, str(place)))
    states.keep("other", 25, Sized(1))
    for place, found in ((9, 0), (10, 10), (29, 20), (30, 30), (99, 30)):
        at, state = states.before("stream", place)
        assert at == found
        assert (state and state.name) == (f"{found}'" if found else None)
    assert len(states) == 4


def test_states_end_with_their_library() -> None:
    with LibrarySession("cpu") as session:
        fill(session, ("mrg32k3a", "default"), 1, 0, 90_000)
        (library,) = (x for x in session._libraries.values() if isinstance(x, CpuRng))
        assert library._states.nbytes == 6 * 4 * 81920
    assert library._states.nbytes == 0
