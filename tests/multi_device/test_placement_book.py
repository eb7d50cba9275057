"""Choices and reservations, without devices."""

import dataclasses
from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.multi_device.placement import Candidate, NoEligibleDevice, PlacementHints
from callboard.multi_device.placement.book import PlacementBook, Reservation
from callboard.multi_device.placement.gangs import best_set
from callboard.multi_device.placement.policies import chooser_of

GIB = 1 << 30


def book(policy: Any = "least_loaded", **free: int) -> PlacementBook:
    made = PlacementBook(chooser_of(policy))
    for name, gib in free.items():
        made.add(Candidate(name, "cuda", (9, 0), gib * GIB, gib * GIB))
    return made


def chosen(made: PlacementBook, count: int, **hints: Any) -> list[str]:
    return [made.pick(PlacementHints(**hints), 0.0).candidate.id for _ in range(count)]


def test_policies() -> None:
    assert chosen(book("round_robin", a=1, b=9, c=4), 4) == ["a", "b", "c", "a"]
    assert chosen(book("pack", a=4, b=2, c=8), 3, memory_bytes=GIB) == ["b", "b", "a"]
    assert chosen(book("spread", a=4, b=2, c=8), 4) == ["c", "a", "b", "c"]
    assert chosen(book(lambda hints, able: able[-1], a=1, b=1), 2) == ["b", "b"]
    busy = book(a=4, b=4)
    busy.candidates["a"].in_flight = 2
    assert chosen(busy, 4) == ["b", "b", "a", "b"]
    with pytest.raises(ValueError, match="policy 'best': use 'round_robin', 'least_loaded', 'pack', 'spread'"):
        chooser_of("best")


def test_a_burst_spreads_evenly_before_anything_has_begun() -> None:
    made = book(**{f"d{index}": 80 for index in range(7)})
    counts = Counter(chosen(made, 1000, memory_bytes=1))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(
    "hints, why",
    [
        ({"memory_bytes": 9 * GIB}, "a: 8,589,934,592 bytes are available (0 are reserved)"),
        ({"min_free_bytes": 9 * GIB}, "a: 8,589,934,592 bytes are available"),
        ({"min_compute_cap": (10, 0)}, "a: its compute capability is 9.0"),
        ({"backend": "cpu"}, "a: its backend is 'cuda'"),
        ({"avoid": frozenset("a")}, "a: it is to be avoided"),
        ({"streams": 33}, "a: 32 streams are available"),
        ({"near": frozenset("b")}, "a: it has no link to b"),
    ],
)
def test_why_not(hints: dict[str, Any], why: str) -> None:
    made = book(a=8)
    with pytest.raises(NoEligibleDevice) as caught:
        made.pick(PlacementHints(**hints), 0.0)
    assert why in str(caught.value)
    assert f"no device can take {next(iter(hints))} = " in str(caught.value)
    found = made.explain(PlacementHints(**hints), 0.0)
    assert (found.chosen, found.able, list(found.refused)) == (None, (), ["a"])
    assert why in str(found)


def test_explained() -> None:
    made = book(a=8, b=4)
    made.pick(PlacementHints(memory_bytes=GIB, streams=2), 0.0)
    found = made.explain(PlacementHints(memory_bytes=5 * GIB), 0.0)
    assert str(found) == (
        "chosen: a; able: a; a: 0 ops in flight, 1 choices not released, 7,516,192,768 bytes and 30 streams available; "
        "b: 4,294,967,296 bytes are available (0 are reserved)"
    )


def test_a_device_that_is_being_rebuilt_is_passed_over() -> None:
    made = book(a=8, b=8)
    made.candidates["a"].ready = False
    assert chosen(made, 2) == ["b", "b"]
    assert made.explain(PlacementHints(), 0.0).refused == {"a": "its context is being rebuilt"}


def test_leases_end_and_releases_count_once() -> None:
    made = book(a=8)
    first = made.pick(PlacementHints(memory_bytes=5 * GIB), now=0.0, lease=10.0)
    with pytest.raises(NoEligibleDevice):
        made.pick(PlacementHints(memory_bytes=5 * GIB), now=9.9, lease=10.0)
    second = made.pick(PlacementHints(memory_bytes=5 * GIB), now=10.0, lease=10.0)
    assert not first.active
    made.release(first)
    made.release(second)
    made.release(second)
    assert made.candidates["a"].available_bytes == 8 * GIB
    assert made.candidates["a"].load == 0


def test_choices_that_are_to_be_apart() -> None:
    made = book("pack", a=8, b=8)
    one = made.pick(PlacementHints(apart="replica"), 0.0)
    assert chosen(made, 1, apart="replica") == ["b"]
    with pytest.raises(NoEligibleDevice, match="it has a choice that is to be apart"):
        made.pick(PlacementHints(apart="replica"), 0.0)
    made.release(one)
    assert chosen(made, 1, apart="replica") == ["a"]


def test_a_device_that_leaves_takes_its_reservations_along() -> None:
    made = book(a=8)
    old = made.pick(PlacementHints(memory_bytes=GIB), 0.0)
    made.remove("a")
    made.remove("a")
    made.add(Candidate("a", free_bytes=GIB))
    made.release(old)
    assert made.candidates["a"].available_bytes == GIB
    with pytest.raises(ValueError, match="there is a device 'a' already"):
        made.add(Candidate("a"))


@pytest.mark.parametrize("name", ["memory_bytes", "min_free_bytes", "streams"])
def test_needs_below_zero(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0, but is -1"):
        PlacementHints(**{name: -1})


# -- gangs -------------------------------------------------------------------------------------------------------------


def linked(*islands: str) -> dict[str, frozenset[str]]:
    return {device: frozenset(island) - {device} for island in islands for device in island}


def test_a_gang_stays_within_an_island_and_leaves_whole_islands_whole() -> None:
    made = book(a=8, b=8, c=8, d=8, e=8, f=8)
    made.links = linked("acef", "bd")
    two = made.gang([PlacementHints()] * 2, 0.0)
    assert sorted(r.candidate.id for r in two) == ["b", "d"]
    four = made.gang([PlacementHints()] * 4, 0.0, linked=True)
    assert sorted(r.candidate.id for r in four) == ["a", "c", "e", "f"]


def test_a_gang_is_all_or_nothing() -> None:
    made = book(a=8, b=8, c=2)
    big = PlacementHints(memory_bytes=4 * GIB)
    with pytest.raises(NoEligibleDevice, match="there are no 3 devices at once for this gang"):
        made.gang([big] * 3, 0.0)
    with pytest.raises(NoEligibleDevice, match="that are all linked to each other"):
        made.gang([big] * 2, 0.0, linked=True)
    with pytest.raises(NoEligibleDevice, match="c: 2,147,483,648 bytes are available"):
        made.gang([PlacementHints(), PlacementHints(memory_bytes=9 * GIB)], 0.0)
    assert not any(candidate.choices for candidate in made.candidates.values())


@settings(max_examples=200)
@given(st.data())
def test_a_gang_is_found_whenever_there_is_one(data: st.DataObject) -> None:
    devices = [Candidate(name) for name in "abcde"]
    able = data.draw(st.lists(st.lists(st.sampled_from(devices), unique_by=id, min_size=1), min_size=1, max_size=5))
    links = linked(*data.draw(st.sampled_from([("ab", "cde"), ("abcde",), (), ("ac",)])))
    there_is = [
        pick
        for pick in permutations(devices, len(able))
        if all(any(p is c for c in found) for p, found in zip(pick, able, strict=True))
    ]
    found = best_set(able, links, linked=False)
    assert (found is not None) == bool(there_is)
    if found is not None:
        assert len({c.id for c in found}) == len(able)
        assert all(any(c is o for o in options) for c, options in zip(found, able, strict=True))


@given(
    st.lists(
        st.builds(
            Candidate,
            id=st.uuids().map(str),
            backend=st.sampled_from(["cpu", "cuda"]),
            compute_cap=st.sampled_from([(0, 0), (8, 0), (9, 0)]),
            free_bytes=st.integers(0, 4),
            reserved_bytes=st.integers(0, 3),
            streams=st.integers(0, 3),
            reserved_streams=st.integers(0, 2),
            ready=st.booleans(),
            apart=st.sampled_from([{"a"}, {"b"}, {"a", "b"}]).map(set),
        ),
        min_size=1,
        max_size=6,
    ),
    st.builds(
        PlacementHints,
        min_free_bytes=st.integers(0, 3),
        memory_bytes=st.integers(0, 3),
        streams=st.integers(0, 2),
        min_compute_cap=st.sampled_from([(0, 0), (8, 0), (9, 0)]),
        backend=st.sampled_from([None, "cpu", "cuda"]),
        apart=st.sampled_from([None, "a", "c"]),
    ),
    st.sampled_from(["", "near", "avoid"]),
)
def test_who_can_take_it_is_who_is_not_refused(found: list[Candidate], hints: PlacementHints, first: str) -> None:
    """The quick filter agrees with the one that gives reasons."""
    if first:
        hints = dataclasses.replace(hints, **{first: frozenset({found[0].id})})
    made = PlacementBook(chooser_of("pack"))
    for candidate in found:
        made.add(candidate)
    made.links = {found[0].id: frozenset({found[-1].id}), found[-1].id: frozenset({found[0].id})}
    able = made.explain(hints, 0.0).able
    assert able == tuple(c.id for c in found if c.why_not(hints, made.links.get(c.id, frozenset())) is None)


class Bookkeeping(RuleBasedStateMachine):
    """What is reserved is the sum of the choices that are neither released nor expired, whatever happens."""

    @initialize()
    def begin(self) -> None:
        self.book = book(a=8, b=16, c=4)
        self.now = 0.0
        self.made: list[tuple[Reservation, float]] = []
        self.released: set[int] = set()

    @rule(gib=st.integers(0, 9), lease=st.sampled_from([1.0, 5.0, None]))
    def pick(self, gib: int, lease: float | None) -> None:
        able = [c.id for c in self.book.candidates.values() if self.free(c.id) >= gib * GIB]
        try:
            made = self.book.pick(PlacementHints(memory_bytes=gib * GIB), self.now, lease)
        except NoEligibleDevice:
            assert not able
        else:
            assert made.candidate.id in able
            self.made.append((made, float("inf") if lease is None else self.now + lease))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.made:
            index = data.draw(st.integers(0, len(self.made) - 1))
            self.book.release(self.made[index][0])
            self.released.add(index)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def free(self, device: str) -> int:
        held = [
            r.hints.memory_bytes
            for index, (r, until) in enumerate(self.made)
            if r.candidate.id == device and index not in self.released and until > self.now
        ]
        return self.book.candidates[device].free_bytes - sum(held)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "book"):
            self.book.expire(self.now)
            for candidate in self.book.candidates.values():
                assert candidate.available_bytes == self.free(candidate.id)
                hints = PlacementHints(memory_bytes=5 * GIB)
                assert (candidate.id in self.book.explain(hints, self.now).able) == (candidate.why_not(hints) is None)


TestBookkeeping = Bookkeeping.TestCase


@pytest.mark.parametrize("lease", [-1.0, float("nan")])
def test_a_lease_that_is_no_time_reserves_nothing(lease: float) -> None:
    made = book()
    for choose in (lambda: made.pick(PlacementHints(), 0.0, lease), lambda: made.gang([PlacementHints()], 0.0, lease)):
        with pytest.raises(ValueError, match=f"lease is {lease}; it is a number of seconds from 0, or None"):
            choose()
    assert [candidate.choices for candidate in made.candidates.values()] == [0] * len(made.candidates)


def test_a_gang_of_no_needs_is_empty() -> None:
    assert book().gang([], 0.0, None, linked=True) == book().gang([], 0.0) == []


@pytest.mark.parametrize("ids", ["CPU-10", ["CPU-1"], {3}])
@pytest.mark.parametrize("name", ["near", "avoid"])
def test_ids_are_a_set_of_texts(name: str, ids: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} is .*; pass a set of ids of devices"):
        PlacementHints(**{name: ids})
