"""The pool of slots: no two overlap, all comes back, a dead host's are fenced off."""

import gc
import os
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.together import together

from callboard.core.errors import DeviceStopped, MailboxFull, OutOfMemory
from callboard.device.protocol.arena import Arena, ArenaPool, Slot
from callboard.device.protocol.arena.pool import FIRST, LARGE

F32 = np.dtype("f4")
MIB = 1 << 20


@pytest.fixture(params=[True, False], ids=["shared", "private"])
def shared(request: pytest.FixtureRequest) -> bool:
    if request.param and not hasattr(os, "memfd_create"):
        pytest.skip("memfd is Linux only")
    return bool(request.param)


@pytest.fixture
def pool(shared: bool) -> ArenaPool:
    return ArenaPool(64 * MIB, lambda arena: None, shared=shared)


def place(slot: Slot) -> tuple[int, int]:
    return slot.arena_id, slot.offset


def test_slots_are_views_of_the_arena(pool: ArenaPool) -> None:
    slot = pool.take(100)
    assert slot.nbytes == 100
    assert slot.offset % 256 == 0
    array = slot.as_array(F32, (5, 5))
    array[:] = 1.5
    assert slot.array.shape == (100,)
    assert (slot.array.view(F32) == 1.5).all()
    assert array.ctypes.data == slot.arena.address + slot.offset


def test_arenas_are_announced_before_their_first_slot(shared: bool) -> None:
    announced: list[Arena] = []
    pool = ArenaPool(64 * MIB, announced.append, shared=shared)
    assert announced == []
    slot = pool.take(10)
    assert announced == [slot.arena] == pool.arenas
    pool.take(10)
    assert len(announced) == 1
    large = pool.take(LARGE)
    assert announced[-1] is large.arena is not slot.arena


def test_memory_is_used_again_last_in_first_out(pool: ArenaPool) -> None:
    kept = pool.take(1000)
    a, b = pool.take(5000), pool.take(5000)
    first = place(a)
    pool.give(a)
    assert place(pool.take(5000)) == first
    large = pool.take(LARGE + 1)
    where = place(large)
    pool.give(large)
    assert place(pool.take(LARGE)) == where
    assert place(kept) != place(b)


def test_giving_twice_is_refused(pool: ArenaPool) -> None:
    slot = pool.take(10)
    pool.give(slot)
    with pytest.raises(ValueError, match="returned twice"):
        pool.give(slot)


def test_the_limit(pool: ArenaPool) -> None:
    slots = [pool.take(LARGE) for _ in range(8)]
    with pytest.raises(MailboxFull, match="max_staged_bytes"):
        pool.take(1)
    pool.give(slots.pop())
    pool.take(1)  # free arenas go to make room for others
    assert pool.stats.bytes <= 64 * MIB
    with pytest.raises(
        MailboxFull, match=r"of 68,157,440 bytes is larger than all that may be staged, 67,108,864 bytes"
    ):
        pool.take(65 * MIB)


def test_a_limit_below_an_arenas_usual_size(shared: bool) -> None:
    pool = ArenaPool(MIB, lambda arena: None, shared=shared)
    slots = [pool.take(256 << 10) for _ in range(4)]
    with pytest.raises(MailboxFull):
        pool.take(1)
    for slot in slots:
        pool.give(slot)
    pool.take(MIB)


def test_trim_gives_up_what_nothing_uses(shared: bool) -> None:
    retired: list[Arena] = []
    pool = ArenaPool(256 * MIB, lambda arena: None, retired.append, shared=shared)
    small, large, other = pool.take(10), pool.take(LARGE), pool.take(LARGE)
    pool.give(large)
    assert pool.trim() == large.arena.nbytes
    assert retired == [large.arena]
    pool.give(small)
    pool.give(other)
    assert pool.trim() == small.arena.nbytes + other.arena.nbytes
    assert pool.stats == (0, 0, 0, 0, 0)


def test_a_pool_that_is_closed_while_it_grows_has_no_slot(shared: bool) -> None:
    """As another thread may do, with the loop that would announce the arena."""

    def close(arena: Arena) -> None:
        pool.close()
        raise RuntimeError("Event loop is closed")

    pool = ArenaPool(64 * MIB, close, shared=shared)
    with pytest.raises(DeviceStopped):
        pool.take(100)
    assert pool.stats[:3] == (0, 0, 0)


def test_a_failed_announcement_leaves_nothing(shared: bool) -> None:
    def refuse(arena: Arena) -> None:
        raise ZeroDivisionError

    pool = ArenaPool(64 * MIB, refuse, shared=shared)
    with pytest.raises(ZeroDivisionError):
        pool.take(10)
    assert pool.stats == (0, 0, 0, 0, 0)


def test_short_memory_leaves_the_pool_usable(pool: ArenaPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: Any) -> Arena:
        raise OutOfMemory("no host memory")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "_make", short)
        with pytest.raises(OutOfMemory):
            pool.take(10)
    pool.take(10)


# -- dead hosts --------------------------------------------------------------------------------------------------------


def test_slots_of_a_dying_host_wait_for_its_reaping(pool: ArenaPool) -> None:
    old = pool.take(LARGE)
    where = place(old)
    pool.quarantine("host 1")
    new = pool.take(LARGE)
    pool.give(old)
    assert pool.stats.quarantined == old.reserved
    assert place(pool.take(LARGE)) != where
    pool.give(new)  # taken after the loss was seen: the dead host never heard of it
    assert pool.stats.quarantined == old.reserved
    pool.release("host 1")
    assert pool.stats.quarantined == 0
    assert where in [place(pool.take(LARGE)) for _ in range(2)]


def test_two_dying_hosts(pool: ArenaPool) -> None:
    slot = pool.take(100)
    pool.quarantine(1)
    pool.quarantine(2)
    pool.give(slot)
    pool.release(1)
    assert pool.stats.quarantined > 0
    pool.release(2)
    assert pool.stats[2:] == (0, 0, 0)
    pool.release(3)  # never quarantined: nothing


# -- leased arrays -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (), (0,), (2, 0, 3), (LARGE,)])
def test_leased_arrays(pool: ArenaPool, shape: tuple[int, ...]) -> None:
    array = pool.lease(shape, F32)
    assert array.shape == shape
    assert array.dtype == F32
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 2
    assert pool.stats.slots == 1
    del array
    assert pool.stats.slots == 0


@pytest.mark.few(1)
def test_views_keep_a_lease(pool: ArenaPool) -> None:
    array = pool.lease((10, 10), F32)
    array[...] = 3
    column = array[2:4].T[1:].reshape(-1)[::1].view("u1")
    row = array[5]
    del array, column
    gc.collect()
    assert pool.stats.slots == 1
    pool.take(400).array[:] = 0
    assert (row == 3).all()
    del row
    assert pool.stats.slots == 1  # the taken one


def test_find(pool: ArenaPool) -> None:
    slot = pool.take(1000)
    array = pool.lease((10, 10), F32)
    found = pool.find(array)
    assert found is not None
    arena, offset = found
    assert pool.find(array[3:5]) == (arena, offset + 120)
    assert pool.find(array[3, 2:]) == (arena, offset + 128)
    assert pool.find(array[:, 1:]) is None
    assert pool.find(array.T) is None
    assert pool.find(array + 1) is None
    assert pool.find(slot.as_array(F32, (10,))) == place(slot)
    assert ArenaPool(MIB, lambda arena: None, shared=False).find(array) is None


def test_leased_arrays_outlive_the_pool(pool: ArenaPool) -> None:
    array = pool.lease((1000,), F32)
    slot = pool.take(10)
    pool.close()
    array[:] = 5
    assert array.sum() == 5000
    assert pool.find(array) is None
    pool.give(slot)
    with pytest.raises(DeviceStopped, match="closed"):
        pool.take(10)


def test_a_finalizer_inside_the_pool_does_not_lock_up(pool: ArenaPool) -> None:
    """A garbage collection may end a lease while this very thread holds the pool's lock."""
    array: Any = pool.lease((10,), F32)
    with pool._lock:
        del array
    assert pool.stats.slots == 0


def test_many_threads(pool: ArenaPool) -> None:
    def work(mark: int) -> None:
        for n in range(300):
            slot = pool.take(64 + n * 37 % 5000)
            slot.array[:] = mark
            assert (slot.array == mark).all()
            pool.give(slot)

    together(work, [(mark,) for mark in range(1, 5)])
    assert pool.stats.slots == 0


# -- how much is kept --------------------------------------------------------------------------------------------------


class Simulated:
    """A pool whose arenas have no memory, under takes and gives of random sizes."""

    def __init__(self, seed: int, largest: int, in_flight: int) -> None:
        self.random = random.Random(seed)
        self.largest = largest
        self.in_flight = in_flight
        self.outputs: list[int] = []
        self.retired: list[Any] = []
        self.pool = ArenaPool(4096 * MIB, lambda arena: None, self.retired.append, shared=False)
        self.pool._make = self.make  # type: ignore[assignment]
        self.live: list[Slot] = []
        self.peak = 0

    def make(self, id: int, nbytes: int) -> Any:
        self.outputs.append(nbytes)
        return SimpleNamespace(id=id, nbytes=nbytes, address=id << 40)

    def step(self) -> None:
        if not self.live or (len(self.live) < self.in_flight and self.random.random() < 0.5):
            self.live.append(self.pool.take(int(2 ** self.random.uniform(8, self.largest))))
        else:
            self.pool.give(self.live.pop(self.random.randrange(len(self.live))))
        self.peak = max(self.peak, sum(slot.nbytes for slot in self.live))


@pytest.mark.parametrize("largest, in_flight", [(27, 4), (25, 10), (25, 40), (22, 200)])
@pytest.mark.parametrize("seed", range(3))
def test_mixed_sizes_keep_a_bounded_multiple_of_their_peak(seed: int, largest: int, in_flight: int) -> None:
    load = Simulated(seed, largest, in_flight)
    for k in range(4000):
        load.step()
        if k % 1000 == 999:
            load.pool.settle()
        assert load.pool.stats.bytes <= 2.5 * load.peak + FIRST
    assert len(load.outputs) < 4000 / 50  # the bound is not bought with new arenas
    assert sum(load.outputs) - sum(arena.nbytes for arena in load.retired) == load.pool.stats.bytes


def test_what_two_periods_did_not_need_is_given_up() -> None:
    load = Simulated(1, 25, 20)
    for _ in range(500):
        load.step()
    kept, *others = load.live
    for slot in others:
        load.pool.give(slot)
    busy = load.pool.stats.bytes
    assert load.pool.settle()
    assert load.pool.stats.bytes == busy  # the period that has just ended needed it
    assert load.pool.settle()
    assert load.pool.stats.bytes < busy
    assert load.pool.settle()
    assert load.pool.stats.arenas == 1
    load.pool.give(kept)
    load.pool.settle()
    assert not load.pool.settle()
    assert load.pool.stats == (0, 0, 0, 0, 0)


# -- state machine -----------------------------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Live slots never overlap, held ones are not handed out, and at the end every byte is free."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped: dict[int, Arena] = {}
        self.live: list[Slot] = []
        self.fenced: dict[int, list[tuple[int, int, int]]] = {}  # host: places given back during its quarantine
        self.old: dict[int, set[int]] = {}  # host: slots that were out when it was lost
        self.next_host = 0
        self.pool = ArenaPool(
            48 * MIB,
            lambda arena: self.mapped.__setitem__(arena.id, arena),
            lambda arena: self.mapped.__delitem__(arena.id),
            shared=False,
        )

    @rule(nbytes=st.one_of(st.integers(0, 3000), st.integers(0, 4 * MIB), st.integers(LARGE, 20 * MIB)))
    def take(self, nbytes: int) -> None:
        try:
            slot = self.pool.take(nbytes)
        except MailboxFull:
            return
        assert slot.arena_id in self.mapped
        assert slot.offset + max(nbytes, 1) <= slot.arena.nbytes
        start, stop = slot.offset, slot.offset + slot.reserved
        for other in self.live:
            assert other.arena_id != slot.arena_id or stop <= other.offset or other.offset + other.reserved <= start
        for places in self.fenced.values():
            for arena, a, b in places:
                assert arena != slot.arena_id or stop <= a or b <= start
        self.live.append(slot)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        slot = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        for host, old in self.old.items():
            if id(slot) in old:
                self.fenced[host].append((slot.arena_id, slot.offset, slot.offset + slot.reserved))
                self._kept.append(slot)
        self.pool.give(slot)

    @initialize()
    def begin(self) -> None:
        self._kept: list[Slot] = []  # so that ids stay unique

    @rule()
    def lose(self) -> None:
        self.next_host += 1
        self.old[self.next_host] = {id(slot) for slot in self.live}
        self.fenced[self.next_host] = []
        self.pool.quarantine(self.next_host)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def reap(self, data: st.DataObject) -> None:
        host = data.draw(st.sampled_from(sorted(self.old)))
        del self.old[host], self.fenced[host]
        self.pool.release(host)

    @rule()
    def trim(self) -> None:
        self.pool.trim()

    @rule()
    def settle(self) -> None:
        self.pool.settle()

    @invariant()
    def accounts(self) -> None:
        stats = self.pool.stats
        assert stats.bytes == sum(arena.nbytes for arena in self.mapped.values()) <= 48 * MIB
        assert stats.used - stats.quarantined == sum(slot.reserved for slot in self.live)

    def teardown(self) -> None:
        for slot in self.live:
            self.pool.give(slot)
        for host in self.old:
            self.pool.release(host)
        self.pool.trim()
        assert self.pool.stats == (0, 0, 0, 0, 0)
        assert self.mapped == {}


TestMachine: Callable[[], None] = Machine.TestCase  # type: ignore[assignment]
Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
