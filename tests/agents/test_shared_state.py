"""``SharedGpuStateCoordinator``: leases, fencing, regions, snapshots, deadlocks, dead holders, lost devices."""

import asyncio
import contextlib
import itertools
import os
import random
import signal
from collections.abc import Awaitable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.agents.histories import Operation, linearisable

import callboard as cb
from callboard.actors.clock import ManualClock
from callboard.agents.state.leases import LeaseTable, Request
from callboard.agents.state.regions import overlaps


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def lose(gpu: cb.Device) -> None:
    """Kill the host of a device, and wait for the next generation."""
    generation, pid = gpu.generation, gpu.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while gpu.generation == generation:
        with contextlib.suppress(cb.AccelError):
            await gpu.zeros(1)
    await gpu.zeros(1)


def begun(waiting: Awaitable[Any]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(waiting)


async def test_writers_take_turns_in_order() -> None:
    shared = cb.SharedGpuStateCoordinator(np.zeros(4))
    first = await shared.acquire_write("a")
    others = [begun(shared.acquire_write(name)) for name in ("b", "c")]
    await settle()
    assert [each.done() for each in others] == [False, False]
    shared.write(first, np.ones(4))
    shared.release(first)
    second = await others[0]
    assert (second.number > first.number, others[1].done()) == (True, False)
    assert shared.read(second).tolist() == [1, 1, 1, 1]
    shared.release(second)
    shared.release(await others[1])


async def test_readers_share_and_writers_do_not_starve() -> None:
    shared = cb.SharedGpuStateCoordinator(np.zeros(4))
    readers = [await shared.acquire_read(name) for name in ("a", "b")]
    writer, late = begun(shared.acquire_write("w")), begun(shared.acquire_read("c"))
    await settle()
    assert not writer.done()
    assert not late.done()
    for each in readers:
        shared.release(each)
    token = await writer
    assert not late.done()
    shared.release(token)
    shared.release(await late)


async def test_a_write_with_an_old_token_is_refused() -> None:
    clock = ManualClock()
    shared = cb.SharedGpuStateCoordinator(np.zeros(2), ttl=10, clock=clock)
    old = await shared.acquire_write("a")
    waiting = begun(shared.acquire_write("b"))
    await settle()
    clock.advance(6)
    shared.renew(old)
    clock.advance(6)
    await settle()
    assert not waiting.done()
    clock.advance(5)
    new = await waiting
    shared.write(new, np.ones(2))
    for use in (
        lambda: shared.write(old, np.zeros(2)),
        lambda: shared.apply(old, lambda x: x.fill(0)),
        lambda: shared.renew(old),
    ):
        with pytest.raises(cb.LeaseLost, match="lease 1 of a has ended"):
            use()
    shared.release(old)
    assert shared.read(new).tolist() == [1, 1]
    assert shared.stats().expired == 1
    reader = await shared.acquire_read("b")
    with pytest.raises(cb.LeaseLost, match="a reader's"):
        shared.write(reader, np.zeros(2))


async def test_disjoint_regions_are_written_at_once() -> None:
    shared = cb.SharedGpuStateCoordinator(np.zeros((4, 2)))
    one = await shared.acquire_write("a", region=slice(0, 2))
    two = await shared.acquire_write("b", region=slice(2, 4))
    both = begun(shared.acquire_write("c", region=slice(1, 3)))
    await settle()
    shared.write(one, np.full((2, 2), 1.0))
    shared.apply(two, lambda rows: np.copyto(rows, 2.0))
    shared.release(one)
    await settle()
    assert not both.done()
    shared.release(two)
    assert shared.read(await both).tolist() == [[1, 1], [2, 2]]
    named = cb.SharedGpuStateCoordinator({"x": np.zeros(1), "y": np.zeros(1)})
    x, y = await named.acquire_write("a", region="x"), await named.acquire_write("b", region="y")
    named.write(x, np.ones(1))
    named.write(y, np.full(1, 2.0))
    assert {key: value.tolist() for key, value in named.snapshot().value.items()} == {"x": [1], "y": [2]}
    with pytest.raises(ValueError, match="outside of the first axis, which has 4 rows"):
        await shared.acquire_write("d", region=slice(2, 9))


async def test_snapshots_do_not_change() -> None:
    shared = cb.SharedGpuStateCoordinator(np.zeros(3))
    before = shared.snapshot()
    async with shared.writing("a") as token:
        shared.write(token, np.ones(3))
        between = shared.snapshot()
        shared.apply(token, lambda x: np.multiply(x, 5, out=x))
    assert [each.value.tolist() for each in (before, between, shared.snapshot())] == [[0] * 3, [1] * 3, [5] * 3]
    assert (before.version, between.version, shared.version) == (0, 1, 2)
    with pytest.raises(ValueError, match="read-only"):
        before.value[0] = 1


async def test_arrays_that_were_written_are_the_states_own() -> None:
    shared, one = cb.SharedGpuStateCoordinator({"a": np.zeros(2)}), np.ones(2)
    async with shared.writing(region="a") as token:
        shared.write(token, one)
    async with shared.writing() as token:
        shared.write(token, {**shared.read(token), "b": one})
    one[:] = 9
    assert {name: array.tolist() for name, array in shared.snapshot().value.items()} == {"a": [1, 1], "b": [1, 1]}


async def test_compare_and_swap_by_version() -> None:
    shared = cb.SharedGpuStateCoordinator(0)
    assert await shared.compare_and_swap(0, 7, "a")
    assert not await shared.compare_and_swap(0, 8, "a")
    assert (shared.snapshot().value, shared.version) == (7, 1)


async def test_a_caller_that_leaves_gets_no_lease() -> None:
    """Others would wait for ever for a lease that was granted to a caller that has given up."""
    shared = cb.SharedGpuStateCoordinator(0)
    first = await shared.acquire_write("a")
    gone, third = begun(shared.acquire_write("b")), begun(shared.acquire_write("c"))
    await settle()
    shared.release(first)  # granted to b, which is cancelled before it hears of it
    gone.cancel()
    shared.release(await asyncio.wait_for(third, 30))
    clock = ManualClock()
    shared = cb.SharedGpuStateCoordinator(0, clock=clock)
    first = await shared.acquire_write("a")
    late = begun(shared.acquire_write("b", timeout=2))
    third = begun(shared.acquire_write("c"))
    await settle()
    clock.advance(2)
    with pytest.raises(cb.LeaseTimeout, match="b had no lease within 2 s; held by: a"):
        await late
    shared.release(first)
    shared.release(await asyncio.wait_for(third, 30))


async def test_readers_become_writers_or_the_younger_is_refused() -> None:
    shared = cb.SharedGpuStateCoordinator(0)
    a, b = await shared.acquire_read("a"), await shared.acquire_read("b")
    upgrade = begun(shared.acquire_write("a"))
    await settle()
    with pytest.raises(cb.DeadlockRefused, match="b -> a -> b") as caught:
        await shared.acquire_write("b")
    assert set(caught.value.cycle) == {"a", "b"}
    shared.release(b)
    shared.write(await upgrade, 3)
    assert shared.read(a) == 3


async def test_a_reader_becomes_a_writer_before_those_that_wait_for_it() -> None:
    shared = cb.SharedGpuStateCoordinator(0)
    a, b = await shared.acquire_read("a"), await shared.acquire_read("b")
    other = begun(shared.acquire_write("w"))
    await settle()
    upgrade = begun(shared.acquire_write("a"))
    await settle()
    shared.release(b)
    token = await asyncio.wait_for(upgrade, 30)
    shared.release(token)
    shared.release(a)
    shared.release(await asyncio.wait_for(other, 30))


async def test_a_deadlock_over_several_states_is_found() -> None:
    one, two, three = (cb.SharedGpuStateCoordinator(0) for _ in range(3))
    tokens = [await one.acquire_write("a"), await two.acquire_write("b"), await three.acquire_write("c")]
    first, second = begun(two.acquire_write("a")), begun(three.acquire_write("b"))
    await settle()
    with pytest.raises(cb.DeadlockRefused, match=r"deadlock: c -> a -> b -> c; .* c began last"):
        await one.acquire_write("c")
    three.release(tokens[2])
    three.release(await second)
    two.release(tokens[1])
    two.release(await first)
    assert [each.stats().refused for each in (one, two, three)] == [1, 0, 0]


async def test_the_youngest_is_refused_although_it_waits_already() -> None:
    one, two = cb.SharedGpuStateCoordinator(0), cb.SharedGpuStateCoordinator(0)
    old = await one.acquire_write("old")
    young = await two.acquire_write("young")
    waits = begun(one.acquire_write("young"))
    await settle()
    wins = begun(two.acquire_write("old"))
    with pytest.raises(cb.DeadlockRefused):
        await waits
    assert not wins.done()
    two.release(young)
    two.release(await wins)
    one.release(old)


async def test_the_lease_of_a_stopped_actor_ends() -> None:
    async with cb.ActorSystem("agents") as system:
        actor = system.actor_of(cb.Props(cb.Actor), name="agent")
        shared = cb.SharedGpuStateCoordinator(0)
        await shared.acquire_write(actor)
        waiting = begun(shared.acquire_write("b"))
        await settle()
        assert not waiting.done()
        actor.stop()
        shared.release(await asyncio.wait_for(waiting, 30))


async def test_all_others_finish_when_one_in_ten_dies_with_a_lease() -> None:
    shared = cb.SharedGpuStateCoordinator(np.zeros(8, np.int64))
    draw = random.Random(7)

    async def agent(n: int) -> None:
        start = draw.randrange(8)
        token = await shared.acquire_write(region=slice(start, draw.randrange(start, 8) + 1))
        await asyncio.sleep(0)
        if n % 10 == 3:
            raise RuntimeError("died")  # and never releases it
        shared.apply(token, lambda part: np.add(part, 1, out=part))
        shared.release(token)

    agents = [asyncio.ensure_future(agent(n)) for n in range(100)]
    results = await asyncio.wait_for(asyncio.gather(*agents, return_exceptions=True), 60)
    assert [str(each) for each in results if each is not None] == ["died"] * 10
    assert (shared.version, shared.stats().expired, shared.stats().waiting) == (90, 10, 0)


def test_the_checker_refuses_what_no_register_does() -> None:
    write, stale = Operation(0, 1, "write", 5), Operation(2, 3, "read", 0)
    assert not linearisable([write, stale])
    assert linearisable([Operation(0, 3, "write", 5), Operation(1, 2, "read", 0)])
    both = [Operation(0, 5, "swap", 1, expected=0), Operation(0, 5, "swap", 2, expected=0)]
    assert not linearisable(both)


@pytest.mark.parametrize("seed", range(12))
async def test_histories_are_linearisable(seed: int) -> None:
    draw, time = random.Random(seed), itertools.count()
    shared = cb.SharedGpuStateCoordinator((0, 0))  # value, and version in it
    history: list[Operation] = []

    async def pause() -> None:
        for _ in range(draw.randrange(3)):
            await asyncio.sleep(0)

    async def agent(name: int) -> None:
        for turn in range(3):
            await pause()
            value, began = 10 * name + turn + 1, next(time)
            match draw.choice(["read", "write", "swap", "view"]):
                case "read":
                    async with shared.reading(name) as token:
                        await pause()
                        value = shared.read(token)[0]
                    history.append(Operation(began, next(time), "read", value))
                case "view":
                    history.append(Operation(began, next(time), "read", shared.snapshot().value[0]))
                case "write":
                    async with shared.writing(name) as token:
                        await pause()
                        shared.write(token, (value, 0))
                    history.append(Operation(began, next(time), "write", value))
                case "swap":
                    before = shared.snapshot()
                    await pause()
                    done = await shared.compare_and_swap(before.version, (value, 0), name)
                    kind = Operation(began, next(time), "swap", value, before.value[0], swapped=done)
                    history.append(kind)

    await asyncio.gather(*[agent(n) for n in range(4)])
    assert linearisable(history), history


class Leases(RuleBasedStateMachine):
    """The table against its rules: no conflict among leases, and nothing waits that could be granted."""

    def __init__(self) -> None:
        super().__init__()
        self.table = LeaseTable()
        self.last = 0

    regions = st.one_of(
        st.none(), st.sampled_from(["x", "y"]), st.tuples(st.integers(0, 3), st.integers(4, 6)), st.just((7, 9))
    )

    @rule(agent=st.integers(0, 5), region=regions, write=st.booleans())
    def ask(self, agent: int, region: Any, write: bool) -> None:
        request = Request(agent, region, write, None)
        lease = self.table.try_grant(request, 1.0)
        if lease is None:
            self.table.enqueue(request)
        else:
            self.note(lease.number)
            for _, other in self.table.grant_waiting(1.0):
                self.note(other.number)

    @precondition(lambda self: self.table.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.table.remove(data.draw(st.sampled_from(sorted(self.table.leases))))
        for _, lease in self.table.grant_waiting(1.0):
            self.note(lease.number)

    @precondition(lambda self: self.table.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.table.withdraw(data.draw(st.sampled_from(sorted(self.table.waiting))))
        for _, lease in self.table.grant_waiting(1.0):
            self.note(lease.number)

    def note(self, number: int) -> None:
        assert number > self.last
        self.last = number

    @invariant()
    def leases_do_not_conflict(self) -> None:
        for a, b in itertools.combinations(self.table.leases.values(), 2):
            assert a.agent == b.agent or not (a.write or b.write) or not overlaps(a.region, b.region)

    @invariant()
    def what_waits_has_a_reason(self) -> None:
        assert all(self.table.blockers(key) for key in self.table.waiting)


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


async def test_a_readers_ops_follow_those_of_the_writer_on_a_device() -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        shared = cb.SharedGpuStateCoordinator(gpu.zeros((8, 4), "f32"), device=gpu, backup_every=None)

        async def writer(n: int) -> None:
            async with shared.writing(n, region=slice(2 * n, 2 * n + 2)) as token:
                shared.write(token, np.full((2, 4), n + 1, "f4"))
                shared.apply(token, lambda rows: gpu.copy(gpu.put(np.full((2, 4), 10 * n, "f4")), out=rows))

        before = shared.snapshot()
        await asyncio.gather(*[writer(n) for n in range(4)])
        async with shared.reading("reader") as token:
            found = await shared.read(token).get()
        assert found[:, 0].tolist() == [0, 0, 10, 10, 20, 20, 30, 30]
        assert not (await before.value.get()).any()


@pytest.mark.fault
async def test_a_lost_device_costs_the_writes_since_the_last_copy() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as gpu:
        shared = cb.SharedGpuStateCoordinator(gpu.zeros(4, "f32"), device=gpu, backup_every=None)
        token = await shared.acquire_write("a")
        shared.write(token, np.full(4, 1, "f4"))
        assert await shared.backup() == 1
        shared.write(token, np.full(4, 2, "f4"))
        bare = cb.SharedGpuStateCoordinator(gpu.zeros(4, "f32"), device=gpu, backup_every=None)
        mixed = cb.SharedGpuStateCoordinator({"far": gpu.zeros(4), "near": np.zeros(2)}, device=gpu, backup_every=None)
        await mixed.backup()
        async with mixed.writing(region="near") as near:
            mixed.apply(near, lambda part: part.fill(7))
        generation = gpu.generation
        await lose(gpu)
        with pytest.raises(cb.StateLost, match="made again of version 1") as caught:
            shared.write(token, np.full(4, 3, "f4"))
        assert (caught.value.generation, caught.value.version, caught.value.restored) == (generation, 2, 1)
        with pytest.raises(cb.StateLost):
            shared.write(token, np.full(4, 3, "f4"))  # its lease has ended with the state
        async with shared.reading("b") as reader:
            assert (await shared.read(reader).get()).tolist() == [1, 1, 1, 1]
        assert shared.stats().lost == 1
        with pytest.raises(cb.StateLost, match="attach it again"):
            bare.snapshot()
        with pytest.raises(cb.StateLost, match="made again of version 0"):
            mixed.snapshot()
        again = mixed.snapshot().value  # of that version, both; what was on the host is there
        assert (await again["far"].get()).tolist() == [0, 0, 0, 0]
        assert isinstance(again["near"], np.ndarray)
        assert again["near"].tolist() == [0, 0]
