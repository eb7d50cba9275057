"""Collectives over several CPU devices: every one of them, what is refused, order, losses, hangs, leaving."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest
from tests.conformance import collective_lab as lab
from tests.multi_device.waiting import until
from tests.multi_device.world_lab import BOUND, begin, put, right
from tests.together import together

import callboard as cb
from callboard.actors import ManualClock
from callboard.core.reply import Cause, OpFailure
from callboard.device.client.line.outbox import Outbox
from callboard.kernel.collective import Look, Part, Run, Step
from callboard.multi_device.worlds import forming
from callboard.multi_device.worlds.flight import Flight
from callboard.multi_device.worlds.reply import Collective

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(300)]


class Holder(cb.ResidentActor):
    """Holds an array of its device until it is told."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def hold(self, x: Any, name: str) -> None:
        GATES[name].wait(BOUND)


GATES: dict[str, threading.Event] = {}


# -- every collective --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
async def test_every_collective_in_place_and_not(devices: list[cb.Device], size: int) -> None:
    dtypes = lab.DTYPE_NAMES if size == 4 else ("f32", "bf16", "i32")
    async with cb.world(devices[:size]) as world:
        for kind, in_place in itertools.product(lab.KINDS, (False, True)):
            if (in_place and kind not in lab.IN_PLACE) or (kind == "send" and size == 1):
                continue
            begun = [begin(world, kind, dtype, in_place=in_place) for dtype in dtypes]
            for reply, want in begun:
                await right(reply, want, kind)
        assert world.stats().in_flight == 0
        assert world.stats().completed == world.stats().calls > 0


async def test_every_op(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:3]) as world:
        for op, dtype in itertools.product(lab.OPS, ("f64", "f16", "f8_e5m2", "i8", "u32")):
            reply, want = begin(world, "all_reduce", dtype, op)
            await right(reply, want, "all_reduce", op)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 4])
async def test_every_collective_of_every_dtype_and_op(devices: list[cb.Device], size: int) -> None:
    async with cb.world(devices[:size]) as world:
        for kind, in_place in itertools.product(lab.KINDS, (False, True)):
            if (in_place and kind not in lab.IN_PLACE) or (kind == "send" and size == 1):
                continue
            moved = () if kind in lab.REDUCTIONS else ("bool", "i16", "u16", "c64", "c128", "f4_e2m1")
            ops = lab.OPS if kind in lab.REDUCTIONS else ("sum",)
            for dtype, op, rows in itertools.product((*lab.DTYPE_NAMES, *moved), ops, (0, 1, 3)):
                reply, want = begin(world, kind, dtype, op, in_place, rows)
                await right(reply, want, kind, op)


async def test_arrays_of_many_chunks_and_the_same_bits_on_all_ranks(devices: list[cb.Device]) -> None:
    draw = np.random.default_rng(7)
    xs = [draw.standard_normal(300_007).astype(np.float32) for _ in range(4)]
    first: bytes | None = None
    async with cb.world(devices) as world:
        for _ in range(2):
            results = [(await ref.get()).tobytes() for ref in await world.all_reduce(put(world, xs))]
            first = first or results[0]
            assert set(results) == {first}
        want = ((xs[0] + xs[1]) + xs[2]) + xs[3]  # in the order of the ranks
        assert first == want.tobytes()
        counts = [[100_000 * (i == j) + 1000 * i + 10 * j for j in range(4)] for i in range(4)]
        rows = [draw.integers(0, 255, sum(row)).astype(np.uint8) for row in counts]
        got = await world.all_to_all_v(put(world, rows), counts)
        pieces = [np.split(x, np.cumsum(row)[:-1]) for x, row in zip(rows, counts, strict=True)]
        for j, ref in enumerate(got):
            np.testing.assert_array_equal(await ref.get(), np.concatenate([p[j] for p in pieces]))


async def test_integers_average_towards_zero_and_a_nan_stays(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        xs = [np.array([-7, 7, -8, 127], np.int8), np.array([0, 0, 1, 127], np.int8)]
        got = await world.all_reduce(put(world, xs), "avg")
        np.testing.assert_array_equal(await got[0].get(), np.array([-3, 3, -3, -1], np.int8))
        floats = [np.array([np.nan, 1.0]), np.array([0.0, 2.0])]
        got = await world.all_reduce(put(world, floats), "max")
        np.testing.assert_array_equal(await got[1].get(), [np.nan, 2.0])


async def test_premultiplied_sums(devices: list[cb.Device]) -> None:
    xs = [np.arange(4.0, dtype=np.float32) + r for r in range(3)]
    async with cb.world(devices[:3]) as world:
        same = await world.all_reduce(put(world, xs), cb.PreMulSum(0.5))
        np.testing.assert_allclose(await same[2].get(), sum(xs) * 0.5)
        own = cb.PreMulSum([1.0, devices[1].put(np.float32(2)), 3.0])
        refs = put(world, xs)
        each = await world.reduce_scatter(
            [device.put(np.tile(x, 3)) for device, x in zip(devices, xs, strict=False)], own
        )
        np.testing.assert_allclose(await each[1].get(), xs[0] + 2 * xs[1] + 3 * xs[2])
        await world.all_reduce(refs, own, out=refs)
        np.testing.assert_allclose(await refs[0].get(), xs[0] + 2 * xs[1] + 3 * xs[2])


async def test_parts_at_any_offset_are_sends_of_views(devices: list[cb.Device]) -> None:
    """What an all-to-all of parts at offsets is: a group of sends, each of a view, to a view."""
    async with cb.world(devices[:2]) as world:
        xs = put(world, [np.arange(6) + 10 * r for r in range(2)])
        outs = put(world, [np.zeros(6, np.int64) for _ in range(2)])
        with world.group() as group:
            parts = [group.send(xs[r][1 + r : 3 + r], to=1 - r, out=outs[1 - r][4 - r : 6 - r]) for r in range(2)]
        for part in parts:
            await part
        assert [list(await out.get()) for out in outs] == [[0, 0, 0, 12, 13, 0], [0, 0, 0, 0, 1, 2]]


async def test_a_group_is_one_call_and_its_refs_are_there_at_its_end(devices: list[cb.Device]) -> None:
    async with cb.world(devices) as world:
        edges = put(world, [np.full(3, r) for r in range(4)])
        spare = devices[0].empty(3, "i64")
        with world.group() as group:
            right_of = [group.send(x, to=(r + 1) % 4, out=spare if r == 3 else None) for r, x in enumerate(edges)]
            left_of = [group.send(x, to=(r - 1) % 4) for r, x in enumerate(edges)]
            total = group.all_reduce(edges)
            with pytest.raises(RuntimeError, match="made when the block of the group is left"):
                total.refs  # noqa: B018 - it raises
        assert [(await (await one).get())[0] for one in right_of] == [0, 1, 2, 3]
        assert [(await (await one).get())[0] for one in left_of] == [0, 1, 2, 3]
        assert (await right_of[3]).allocation is spare.allocation
        assert (await (await total)[2].get())[0] == 6
        assert world.stats().calls == 1
        with pytest.raises(RuntimeError, match="begin another one"):
            group.barrier()

        def leave_by_an_error() -> None:
            with world.group() as group:
                group.barrier()
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            leave_by_an_error()
        assert world.stats().calls == 1


async def test_split_makes_worlds_of_their_own(devices: list[cb.Device]) -> None:
    async with cb.world(devices) as world:
        parts = await world.split([0, 1, None, 1], keys=[0, 2, 0, 1])
        assert {c: [d.name for d in w.devices] for c, w in parts.items()} == {0: ["cpu:0"], 1: ["cpu:3", "cpu:1"]}
    got = await parts[1].all_gather([devices[3].put(np.array([3])), devices[1].put(np.array([1]))])
    np.testing.assert_array_equal(await got[0].get(), [3, 1])
    for one in parts.values():
        await one.close()
    with pytest.raises(ValueError, match=r"colors has 2 numbers; the world has 4 ranks"):
        await world.split([0, 1])


async def test_results_are_operands_before_they_are_there(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        x = put(world, [np.eye(4), np.eye(4)])
        await devices[0].blas.gemm(x[0], x[0])  # SciPy is imported once
        for _ in range(3):
            x = list(world.all_reduce([d.blas.gemm(a, a) for d, a in zip(world.devices, x, strict=True)]))
        np.testing.assert_array_equal(await x[0].get(), np.eye(4) * 128)


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_what_does_not_fit_is_refused_before_anything_is_sent(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        a, b = put(world, [np.zeros(4), np.zeros(4)])
        long, whole = devices[1].put(np.zeros(5)), devices[1].put(np.zeros(4, np.float32))
        other, gone = devices[2].put(np.zeros(4)), devices[1].put(np.zeros(4))
        gone.free()
        for device in devices:
            await device.drain()
        cases: list[tuple[Any, type[Exception], str]] = [
            (lambda: world.all_reduce([a]), cb.ShapeError, r"all_reduce: xs has 1 refs; the world has 2 ranks"),
            (lambda: world.all_reduce([a, long]), cb.ShapeError, r"xs\[1\] is f64\[5\], and xs\[0\] is f64\[4\]"),
            (lambda: world.all_reduce([a, whole]), cb.ShapeError, r"xs\[1\] is f32\[4\], and xs\[0\] is f64\[4\]"),
            (lambda: world.all_reduce([b, a]), cb.DeviceMismatch, r"xs\[0\] is on cpu:1; rank 0 is cpu:0"),
            (lambda: world.all_reduce([a, gone]), cb.GpuRefStale, "freed"),
            (lambda: world.all_reduce([a, 3]), TypeError, r"xs\[1\] is int; pass a GpuRef of cpu:1"),  # type: ignore[list-item]
            (lambda: world.all_reduce(a), cb.ShapeError, r"xs has"),  # type: ignore[arg-type]
            (lambda: world.all_reduce([a, b], "xor"), cb.ShapeError, r"op is 'xor'; use one of sum"),  # type: ignore[arg-type]
            (lambda: world.reduce([a, b], root=2), cb.ShapeError, r"reduce: root is 2; the ranks are 0 to 1"),
            (lambda: world.reduce([a, b], root="0"), TypeError, r"root is '0'"),  # type: ignore[arg-type]
            (lambda: world.reduce([a, b], out=b), cb.DeviceMismatch, r"out is on cpu:1; rank 0 is cpu:0"),
            (lambda: world.broadcast(other), cb.DeviceMismatch, r"x is on cpu:2, which is not a rank"),
            (lambda: world.scatter(long), cb.ShapeError, r"split over 2 ranks evenly"),
            (lambda: world.all_gather([a, b], out=[a, b]), cb.ShapeError, r"out\[0\] is f64\[4\]; it must be f64"),
            (lambda: world.all_to_all([a, b], out=[a, b]), cb.ShapeError, r"shares memory"),
            (lambda: world.all_to_all_v([a, b], [[4, 0], [1]]), cb.ShapeError, r"pass 2 x 2 integers >= 0"),
            (lambda: world.all_to_all_v([a, b], [[4, 0], [1, 1]]), cb.ShapeError, r"by counts\[1\] its shape must be"),
            (lambda: world.send(a, to=0), cb.ShapeError, r"x is on rank 0 already"),
            (lambda: world.all_reduce([a, b], cb.PreMulSum([1.0])), cb.ShapeError, r"factor has 1 numbers"),
            (lambda: world.all_reduce([a, b], cb.PreMulSum(b)), cb.DeviceMismatch, r"the factor of rank 0 is on cpu:1"),
            (lambda: world.reduce_scatter([a[::2], b[::2]]), cb.ShapeError, r"it must have no gaps"),
        ]
        for call, kind, text in cases:
            with pytest.raises(kind, match=text):
                call()
        with pytest.raises(cb.UnsupportedOp, match="cannot be recorded"), devices[1].record():
            world.all_reduce([a, b])
        assert world.stats().calls == 0
        assert [device.in_flight for device in devices[:2]] == [0, 0]
    with pytest.raises(cb.WorldStopped, match="the world is closed"):
        world.barrier()


async def test_what_no_world_can_be_made_of(devices: list[cb.Device]) -> None:
    for given, options, text in (
        ([], {}, "at least one rank"),
        ([devices[0], devices[0]], {}, "given twice"),
        (devices[:1], {"timeout": 0}, "timeout is 0"),
    ):
        with pytest.raises(ValueError, match=text):
            await cb.world(given, **options)
    await devices[3].close()
    with pytest.raises(cb.WorldStopped):
        await cb.world(devices)


# -- order -------------------------------------------------------------------------------------------------------------


async def test_worlds_over_the_same_devices_in_other_orders_from_several_threads(devices: list[cb.Device]) -> None:
    """All devices are given all calls in one order, whichever thread makes them."""
    worlds = [await cb.world(list(order)) for order in (devices, devices[::-1], devices[1:3], devices[2:0:-1])]

    def work(world: cb.World, seed: int) -> None:
        refs = put(world, [np.full(5, r + seed) for r in range(world.size)])
        for _ in range(20):
            reply = world.all_reduce(refs)
            world.barrier()
        for ref in reply.result(BOUND):
            assert (ref.get().result(BOUND) == sum(range(world.size)) + seed * world.size).all()

    async with asyncio.timeout(2 * BOUND):
        await asyncio.to_thread(together, work, [(w, s) for s, w in enumerate(worlds * 2)], BOUND)
        for one in worlds:
            await one.close()


async def test_a_rank_that_waits_holds_nothing_else_of_its_host(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:2]) as world:
        barrier = [Part(r, 2, (Step("barrier"),)) for r in range(2)]
        number = world._number
        alone = devices[0].ask(Run(part=barrier[0], world=number, call=1, after=0, outs=()))
        a = devices[0].put(np.eye(3))
        async with asyncio.timeout(BOUND):
            np.testing.assert_array_equal(await devices[0].blas.gemm(a, a).get(), np.eye(3))
            await devices[0].stats()
        assert not alone.done()
        await devices[1].ask(Run(part=barrier[1], world=number, call=1, after=0, outs=()))
        await alone


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_part_that_fails_fails_the_collective_and_the_world_forms_again(devices: list[cb.Device]) -> None:
    async with cb.world(devices[:3]) as world:
        indefinite = -np.eye(4)
        xs = put(world, [np.eye(4)] * 3)
        with pytest.raises(cb.NumericalError):
            xs[1] = await devices[1].solver.cholesky(devices[1].put(indefinite))
        xs[1] = devices[1].solver.cholesky(devices[1].put(indefinite))
        await asyncio.wait([asyncio.ensure_future(_settled(xs[1]))])
        first, second = world.all_reduce(xs), world.barrier()
        with pytest.raises(cb.NumericalError) as caught:
            await first
        assert any("the part of rank 1 (cpu:1) of call 1" in note for note in caught.value.__notes__)
        with pytest.raises(cb.WorldLost, match=r"rank 1: its part of call 1 failed") as lost:
            await second
        assert (lost.value.rank, lost.value.formation) == (1, 1)
        async with asyncio.timeout(BOUND):
            await world.ready()
        assert (world.formation, world.stats().losses, world.health().ok) == (2, 1, True)
        await right(*begin(world, "all_reduce", "f32"), "all_reduce")


async def _settled(ref: Any) -> None:
    with contextlib.suppress(cb.AccelError):
        await ref


def lost_by(rank: int) -> cb.WorldLost:
    return cb.WorldLost(f"rank {rank} has left", rank, 1)


@pytest.mark.parametrize("said", ["its error", "nothing", "success"])
async def test_the_rank_that_left_says_why_before_the_collective_fails(devices: list[cb.Device], said: str) -> None:
    """Whichever host is heard first: the error of the part that failed is the collective's."""
    clock = ManualClock()
    async with cb.world(devices[:3], clock=clock) as world:
        reply: cb.Collective[Any] = Collective(asyncio.get_running_loop(), "barrier", lambda refs: None)
        flight = Flight(world._number, 1, [reply], world._part_failed, world._ended)
        parts = [flight.part(rank, devices[rank]._port) for rank in range(3)]
        reply.called((), parts)
        world._begin(flight)
        for rank in (0, 2):
            parts[rank]._reject(OpFailure(Cause(devices[rank]._port, lambda op, ops: lost_by(1))))
        assert not reply.done()
        if said == "its error":
            parts[1]._reject(OpFailure(Cause(devices[1]._port, lambda op, ops: cb.NumericalError("not finite"))))
        elif said == "success":
            parts[1]._resolve()
        else:
            clock.advance(2.0)
        assert isinstance(reply.exception(), cb.NumericalError if said == "its error" else cb.WorldLost)
        async with asyncio.timeout(BOUND):
            await world.ready()
        assert world.formation == 2


async def test_a_hang_has_a_bound(devices: list[cb.Device]) -> None:
    clock = ManualClock()
    gate = GATES["hang"] = threading.Event()
    async with cb.world(devices[:2], timeout=30.0, clock=clock) as world:
        xs = put(world, [np.ones(3)] * 2)
        held = devices[1].actor_of(cb.Props(Holder)).call(Holder.hold, xs[1], "hang")
        reply = world.all_reduce(xs, out=xs)
        await asyncio.sleep(0)
        clock.advance(29.0)
        assert not reply.done()
        clock.advance(2.0)
        with pytest.raises(cb.WorldLost, match=r"nothing has ended for 30 s; call 1 \(all_reduce\) hangs") as caught:
            await reply
        assert caught.value.rank == -1
        with pytest.raises(cb.WorldLost, match=r"the world is forming after: nothing has ended"):
            world.barrier()
        async with asyncio.timeout(BOUND):
            await world.ready()  # though rank 1's part is still parked: leaving and joining pass it
        behind = world.barrier()
        gate.set()
        await held
        await behind
        await right(*begin(world, "all_gather", "i32"), "all_gather")


async def test_leaving_waits_for_what_runs_or_fails_it(devices: list[cb.Device]) -> None:
    world = await cb.world(devices)
    begun = [begin(world, kind, "f32") for kind in ("all_reduce", "gather", "all_to_all")]
    async with asyncio.timeout(BOUND):
        await world.close()
    assert all(reply.done() and reply.exception() is None for reply, _ in begun)
    gate = GATES["leave"] = threading.Event()
    async with asyncio.timeout(BOUND):
        world = await cb.world(devices[:2])
        xs = put(world, [np.ones(3)] * 2)
        held = devices[1].actor_of(cb.Props(Holder)).call(Holder.hold, xs[1], "leave")
        reply = world.all_reduce(xs, out=xs)
        await world.close(drain=False)
        with pytest.raises(cb.WorldLost, match="the world was closed"):
            await reply
        gate.set()
        await held
        await world.close()
        assert world.health().state == "closed"


async def test_a_world_that_is_closed_while_it_forms_leaves_no_rank_behind(
    devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def without_end(ranks: Any, number: int, timeout: float, hang: float) -> list[int]:
        await forming.form(ranks, number, timeout, hang)
        joined.set_result(number)
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(sys.modules[cb.World.__module__], "form", without_end)
    opening = asyncio.ensure_future(cb.world(devices[:2])._open())
    async with asyncio.timeout(BOUND):
        number = await joined
        assert await devices[0].ask(Look(world=number)) == "ready"
        opening.cancel()
        await asyncio.wait([opening])
        for device in devices[:2]:
            with pytest.raises(cb.WorldLost, match="is not a rank of world"):
                await device.ask(Look(world=number))


async def test_a_world_that_cannot_form_says_so(devices: list[cb.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> list[int]:
        raise ArithmeticError("no numbers")

    monkeypatch.setattr(sys.modules[cb.World.__module__], "form", broken)
    async with asyncio.timeout(BOUND):
        with pytest.raises(cb.WorldStopped, match="ArithmeticError: no numbers"):
            await cb.world(devices[:2])


async def test_awaiting_polls_for_all_parts_together_if_each_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a single op: the loop is held for a moment where that is likely to be enough."""
    seen: list[str] = []

    class Part:
        def __init__(self, name: str, in_flight: int, there: bool) -> None:
            self.name, self.in_flight, self.there = name, in_flight, there
            self.port = self.outbox = self

        def done(self) -> bool:
            return self.there

        def flush(self) -> None:
            seen.append(f"flush {self.name}")

    monkeypatch.setattr(Outbox, "linger_together", lambda waits: seen.extend(outbox.name for outbox, _ in waits))
    alone = Part("a", 1, False)
    for last, polled in ((1, ["a", "c"]), (2, [])):
        reply: cb.Collective[Any] = Collective(asyncio.get_running_loop(), "barrier", lambda refs: None)
        parts: list[Any] = [alone, Part("b", 0, True), Part("c", last, False)]
        reply.called((), parts)
        waiting = asyncio.ensure_future(_settled(reply))
        await asyncio.sleep(0)
        assert seen == ["flush a", "flush b", "flush c", *polled]
        seen.clear()
        reply.succeed()
        await waiting


async def test_a_device_that_stops_stops_the_world(devices: list[cb.Device]) -> None:
    async with cb.world(devices) as world:
        await devices[2].close()
        await until(lambda: world.health().state == "stopped")
        with pytest.raises(cb.WorldStopped, match=r"the world has stopped: rank 2"):
            world.barrier()
        with pytest.raises(cb.WorldStopped):
            await world.ready()
        assert "stopped" in repr(world)


@pytest.mark.slow
async def test_a_killed_rank_fails_what_runs_and_the_world_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "3")
    async with cb.System("killed") as system:
        devices = [await system.device(f"cpu:{i}", isolation="process") for i in range(3)]
        async with asyncio.timeout(BOUND), cb.world(devices) as world:
            kept = put(world, [np.ones(200_000)] * 3)
            await world.all_reduce(kept)
            number, in_flight = world._number, [world.all_reduce(kept) for _ in range(6)]
            pid = devices[1].health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            in_flight += [world.all_reduce(kept) for _ in range(6)]
            ended = await asyncio.gather(*in_flight, return_exceptions=True)
            lost = [e for e in ended if isinstance(e, BaseException)]
            assert lost
            for error in lost:
                assert isinstance(error, cb.WorldLost)
                assert (error.rank, error.formation, error.retryable) == (1, 1, True)
            with pytest.raises(cb.ContextLost):  # forming, or its array is of the context that is gone
                world.all_reduce(kept)
            await world.ready()
            assert world._number > number
            assert world.stats()[:3] == (3, 2, 1)
            stale = Run(part=Part(0, 3, (Step("barrier"),)), world=number, call=99, after=98, outs=())
            with pytest.raises(cb.WorldLost, match="is not a rank of world"):  # what is of the old world is fenced off
                await devices[0].ask(stale)
            kept[1] = devices[1].put(np.ones(200_000))
            np.testing.assert_array_equal(await (await world.all_reduce(kept))[2].get(), np.full(200_000, 3.0))
