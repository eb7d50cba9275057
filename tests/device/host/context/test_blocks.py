"""Blocks and timelines against a model: users of memory run in order, and no memory is lost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.backend import Memory
from callboard.core.errors import OutOfMemory
from callboard.device.host.context.blocks import SPARES, Block, BlockPool, size_class
from callboard.device.host.context.timelines import EVENT_INTERVAL, Timeline


class Event:
    """A point in a stream: what has certainly run when it is reached."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self.ran = set(stream.ran)
        self.at = len(stream.ops)

    def query(self) -> bool:
        return self.at <= self.stream.finished


class Stream:
    """Keeps, of each op, which others certainly run before it."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.ran: set[int] = set()  # certainly before whatever is enqueued from now on
        self.ops: list[int] = []
        self.before: dict[int, set[int]] = {}  # of each, also on other streams
        self.finished = 0
        self.waits = 0

    def launch(self, op: int) -> set[int]:
        before = self.before[op] = set(self.ran)
        self.ran.add(op)
        self.ops.append(op)
        return before

    def record(self) -> Event:
        return Event(self)

    def query(self) -> bool:
        return self.finished == len(self.ops)

    def recycle(self, event: Event) -> None:
        pass

    def wait(self, event: Event) -> None:
        self.waits += 1
        self.ran |= event.ran


class Device:
    """Gives out addresses; knows which are out."""

    def __init__(self, total: int = 1 << 60) -> None:
        self.total = total
        self.out: dict[int, int] = {}
        self._next = 4096

    def memory_info(self) -> tuple[int, int]:
        return self.total - sum(self.out.values()), self.total

    def allocate(self, nbytes: int) -> Memory:
        if sum(self.out.values()) + nbytes > self.total:
            raise OutOfMemory("full")
        self._next += nbytes
        self.out[self._next] = nbytes
        return Memory(self._next, nbytes)

    def release(self, memory: Memory) -> None:
        del self.out[memory.address]


USES = st.lists(
    st.one_of(
        st.tuples(
            st.just("op"),
            st.integers(0, 2),
            st.lists(st.integers(0, 3), max_size=2),
            st.lists(st.integers(0, 3), max_size=2),
        ),
        st.tuples(st.just("replace"), st.integers(0, 3)),  # freed, and memory taken for another array
        st.tuples(st.just("finish"), st.integers(0, 2), st.integers(1, 40), st.booleans()),
        st.tuples(st.just("trim")),
    ),
    max_size=120,
)


@settings(max_examples=150)
@given(USES)
def test_every_use_runs_after_those_that_it_has_to(program: list[tuple[Any, ...]]) -> None:
    device = Device()
    pool = BlockPool(device, None)  # type: ignore[arg-type]
    timelines = [Timeline(Stream(i)) for i in range(3)]  # type: ignore[arg-type]
    arrays = [pool.take(1000) for _ in range(4)]
    history: dict[int, list[tuple[int, bool]]] = {}  # by address: ops that used it, and whether they wrote
    done: set[int] = set()
    number = 0
    for what, *rest in program:
        if what == "op":
            at, reads, writes = rest
            timeline = timelines[at]
            number += 1
            used = [(arrays[i], False) for i in reads] + [(arrays[i], True) for i in writes]
            for block, writing in used:  # as admission does it
                if block.only is not timeline:
                    block.enter(timeline, writing)
            if timeline.trails:
                timeline.record_event()
            timeline.issued += 1
            for block, writing in used:
                if writing:
                    block.writer, block.wrote = timeline, timeline.issued
                else:
                    block.readers[timeline] = timeline.issued
            before = timeline.stream.launch(number) | done  # type: ignore[attr-defined]
            for block, writing in used:
                for other, wrote in history.get(block.address, []):
                    assert not (writing or wrote) or other in before or other == number, (number, other)
            for block, writing in used:
                history.setdefault(block.address, []).append((number, writing))
            if timeline.issued - timeline.recorded >= EVENT_INTERVAL:
                timeline.record_event()
        elif what == "replace":
            pool.give(arrays[rest[0]])
            arrays[rest[0]] = pool.take(1000)
        elif what == "finish":
            timeline = timelines[rest[0]]
            stream: Any = timeline.stream
            if rest[2]:
                timeline.record_event()
            for op in stream.ops[stream.finished : stream.finished + rest[1]]:
                if not stream.before[op] <= done:
                    break
                stream.finished += 1
                done.add(op)
            timeline.poll()
            assert timeline.completed <= stream.finished
            assert timeline.completed == timeline.issued or timeline.events or timeline.trails
        else:
            pool.trim()
            assert all(block.address in device.out for block in arrays)
    assert pool.used == 4 * size_class(1000)
    assert pool.used + pool.cached == sum(device.out.values())


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.booleans()), max_size=60), st.integers(4096, 1 << 17))
def test_the_limit_holds_and_everything_comes_back(program: list[tuple[int, bool]], limit: int) -> None:
    device = Device()
    pool = BlockPool(device, limit)  # type: ignore[arg-type]
    out: list[Block] = []
    for nbytes, gives in program:
        if gives and out:
            pool.give(out.pop(nbytes % len(out)))
        else:
            if pool.used + size_class(nbytes) > limit:
                with pytest.raises(OutOfMemory, match="memory_limit"):
                    pool.take(nbytes)
                continue
            block = pool.take(nbytes)
            assert block.memory.nbytes >= nbytes == block.nbytes
            assert all(block is not other for other in out)
            out.append(block)
        assert pool.used == sum(b.memory.nbytes for b in out)
        assert sum(device.out.values()) == pool.used + pool.cached <= limit
    for block in out:
        pool.give(block)
    pool.trim()
    assert not device.out
    assert pool.used == pool.cached == 0


def test_a_full_device_gets_the_cache_back_first() -> None:
    device = Device(total=4096)
    pool = BlockPool(device, None)  # type: ignore[arg-type]
    pool.give(pool.take(2048))
    assert pool.cached == 2048
    big = pool.take(4096)
    assert pool.cached == 0
    with pytest.raises(OutOfMemory):
        pool.take(1)
    pool.give(big)


@given(st.integers(0, 1 << 48))
def test_size_classes_are_large_enough_and_waste_little(nbytes: int) -> None:
    size = size_class(nbytes)
    assert size >= max(nbytes, 512)
    assert size % 256 == 0
    assert nbytes <= 2048 or size <= 1.125 * nbytes + 256
    assert size_class(size) == size


def test_a_timeline_waits_once_for_what_covers_several_ops() -> None:
    one, two = Timeline(Stream(1)), Timeline(Stream(2))  # type: ignore[arg-type]
    one.issued = 5
    for seq in (1, 3, 5):
        two.follow(one, seq)
    assert two.stream.waits == 1  # type: ignore[attr-defined]
    assert len(one.events) == 1
    one.issued = 6
    two.follow(one, 6)
    assert two.stream.waits == 2  # type: ignore[attr-defined]
    one.completed = 6
    three = Timeline(Stream(3))  # type: ignore[arg-type]
    three.follow(one, 6)
    assert three.stream.waits == 0  # type: ignore[attr-defined]


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_sorted_blocks_come_again_however_they_were_given_back(first: list[int], second: list[int]) -> None:
    pool = BlockPool(Device(), None)  # type: ignore[arg-type]
    taken = [pool.take(1000) for _ in range(4)]
    addresses = []
    for order in (first, second):
        for at in order:
            pool.give(taken[at])
        pool.sort([1000, 50])
        taken = [pool.take(900) for _ in range(4)]
        addresses.append([block.address for block in taken])
    assert addresses[0] == addresses[1] == sorted(addresses[0])


class Pipeline:
    """Copies to the device, computing and copies to the host on timelines of their own; nothing is ever done.

    Args:
        pool: Where each item takes two blocks from, each given back when the op that reads it has been called.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.up, self.compute, self.down = (Timeline(Stream(n)) for n in range(3))  # type: ignore[arg-type]

    def item(self) -> tuple[int, int]:
        """Call one; gives how often uploads, and computing, have waited for others so far."""
        x = self.pool.take(1000, self.up)
        self._use(x, self.up, writes=True)
        self._use(x, self.compute, writes=False)
        y = self.pool.take(1000, self.compute)
        self._use(y, self.compute, writes=True)
        self.pool.give(x)
        self._use(y, self.down, writes=False)
        self.pool.give(y)
        return self.up.stream.waits, self.compute.stream.waits  # type: ignore[attr-defined]

    def _use(self, block: Block, timeline: Timeline, *, writes: bool) -> None:
        block.enter(timeline, writes)
        timeline.issued += 1
        if writes:
            block.writer, block.wrote = timeline, timeline.issued
        else:
            block.readers[timeline] = timeline.issued


def test_copies_and_computing_wait_for_no_block_that_comes_again() -> None:
    pool = BlockPool(Device(), None)  # type: ignore[arg-type]
    line = Pipeline(pool)
    # An upload waits for nothing, and computing for its upload alone, while items are in flight.
    assert [line.item() for _ in range(SPARES // 2)] == [(0, n + 1) for n in range(SPARES // 2)]
    for _ in range(20):  # whatever is in flight, no more are kept
        line.item()
    assert pool.cached <= (SPARES + 1) * size_class(1000)  # one was in use while the last was made
    for timeline in (line.up, line.compute, line.down):
        timeline.completed = timeline.issued
    made = pool.misses
    line.item()
    assert pool.misses == made


@pytest.mark.parametrize("total, limit", [(4096, None), (1 << 30, 2048)])
def test_blocks_come_again_where_memory_is_short(total: int, limit: int | None) -> None:
    pool = BlockPool(Device(total), limit)  # type: ignore[arg-type]
    line = Pipeline(pool)
    for _ in range(20):
        line.item()
    assert pool.used == 0
    assert pool.cached <= (limit or total * 7 // 8)
    assert pool.misses <= 3


def test_readers_stay_users_until_the_write_is_enqueued() -> None:
    reader, writer = (Timeline(Stream(n)) for n in range(2))  # type: ignore[arg-type]
    block = BlockPool(Device(), None).take(8)  # type: ignore[arg-type]
    block.enter(reader, writes=False)
    reader.issued += 1
    block.readers[reader] = reader.issued
    block.after_users(writer)
    assert not block.idle(), "a call in another process must not write yet"
    reader.completed = reader.issued
    assert block.idle()
    block.before_write(writer)
    assert not block.readers
