"""Arrays above ``max_staged_bytes``: every transfer of every layout goes in parts, in every isolation, and ends."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from tests.conformance.sessions import node
from tests.device.residents.lab import Gate
from tests.multi_device.copies_lab import Slow, pair

import callboard as cb
from callboard.device.client.staging.windows import Window, blocks
from callboard.device.protocol.arena import ArenaPool

pytestmark = pytest.mark.leaves_nothing

T = TypeVar("T")
BOUND = 45.0
SMALL = 8192
PLACES = ["thread", "process", "loop", pytest.param("node", marks=pytest.mark.slow)]
X = np.arange(4096, dtype="f4").reshape(64, 64)

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[:, ::2],
    "rows": lambda x: x[::2],
    "negative": lambda x: x[::-1, ::-1],
    "empty": lambda x: x[:0],
    "block": lambda x: x[3:61, 5:60],
    "cube": lambda x: x.reshape(4, 16, 8, 8)[:, 1:, ::-1],
    "scalar": lambda x: x[3, 5],
}


def options(place: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"standby": None, "max_staged_bytes": SMALL, "isolation": "thread", **more}
    if place == "loop":
        given["dispatcher"] = "caller"
    elif place == "process":
        given["isolation"] = "process"
    return given


@pytest.fixture(params=PLACES)
def blocking(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    if request.param == "node":
        with node() as place, cb.sync.device("cpu", **options("process", node=place)) as device:
            yield device
    else:
        with cb.sync.device("cpu", **options(request.param)) as device:
            yield device


@pytest.fixture(params=["thread", "process", "loop"])
async def cpu(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", **options(request.param)) as device, asyncio.timeout(BOUND):
        yield device


def bounded(call: Callable[[], T]) -> T:
    """What ``call()`` returns; fails if it does not return."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append((True, call()))
        except BaseException as e:
            ended.append((False, e))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(BOUND)
    assert ended, "it never returned"
    ok, value = ended[0]
    if not ok:
        raise value
    returned: T = value
    return returned


@pytest.mark.few(len(PLACES))
def test_every_layout_comes_and_goes(blocking: cb.sync.Device) -> None:
    gpu = blocking

    def transfer(view: Callable[[Any], Any]) -> None:
        want = view(X)
        x = gpu.put(X)
        np.testing.assert_array_equal(view(x).get(), want)
        np.testing.assert_array_equal(np.asarray(view(x)), want)
        out = np.zeros_like(want)
        assert view(x).get(out=out) is out
        np.testing.assert_array_equal(out, want)
        sparse = np.zeros((*want.shape, 2), "f4")
        view(x).get(out=sparse[..., 1])
        np.testing.assert_array_equal(sparse[..., 1], want)
        np.testing.assert_array_equal(gpu.put(want).get(), want)
        np.testing.assert_array_equal(gpu.put(want, non_blocking=True).get(), want)
        target = gpu.zeros((64, 64))
        assert gpu.put(want, out=view(target)).shape == want.shape
        np.testing.assert_array_equal(view(target).get(), want)
        np.testing.assert_array_equal(gpu.memcpy(view(target), want + 1).get(), want + 1)
        np.testing.assert_array_equal(gpu.memcpy(np.empty_like(want), view(target)), want + 1)

    for view in LAYOUTS.values():
        bounded(lambda view=view: transfer(view))


def test_a_broadcast_array_and_each_size_of_element(blocking: cb.sync.Device) -> None:
    def transfer() -> None:
        wide = np.broadcast_to(np.arange(64, dtype="f4"), (64, 64))
        np.testing.assert_array_equal(blocking.put(wide).get(), wide)
        for dtype in ("u1", "i2", "f8", "c16"):
            values = np.arange(3001).astype(dtype)
            np.testing.assert_array_equal(blocking.put(values)[::-3].get(), values[::-3])

    bounded(transfer)


def test_arrays_in_another_byte_order(blocking: cb.sync.Device) -> None:
    swapped = X.astype(X.dtype.newbyteorder())
    ref = blocking.put(swapped)
    np.testing.assert_array_equal(ref.get(), X)
    blocking.put(swapped[::-1], out=ref)
    ref[0] = swapped[0]
    np.testing.assert_array_equal(ref.get(), np.concatenate([X[:1], X[-2::-1]]))
    leased = blocking.host_empty((8,), "f4").view(swapped.dtype)
    leased[:] = range(8)
    np.testing.assert_array_equal(blocking.put(leased).get(), range(8))


def test_the_least_limits() -> None:
    def transfer() -> None:
        least: list[dict[str, Any]] = [{"max_staged_bytes": 1}, {"max_in_flight": 1}]
        for limits in (*least, least[0] | least[1]):
            with cb.sync.device("cpu", isolation="thread", standby=None, **limits) as gpu:
                x = gpu.put(X)
                np.testing.assert_array_equal(x.T.get(), X.T)
                target = gpu.zeros((64, 128))
                gpu.put(X, out=target[:, ::2])
                np.testing.assert_array_equal(target[:, ::2].get(), X)
                np.testing.assert_array_equal((x.T + x).get(), X.T + X)

    bounded(transfer)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["thread", "process"])
def test_many_transfers_at_once(place: str) -> None:
    """Each takes its memory as a whole, so none waits for another's while it holds some."""
    with cb.sync.device("cpu", **options(place, max_in_flight=4)) as gpu:
        wrong: list[BaseException | int] = []

        def work(i: int) -> None:
            try:
                for _ in range(5):
                    x = gpu.put(X + i)
                    np.testing.assert_array_equal(x.T.get(), X.T + i)
                    np.testing.assert_array_equal(gpu.put((X + i)[:2]).get(), X[:2] + i)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        assert not any(thread.is_alive() for thread in threads)
        assert not wrong


async def test_the_order_of_calls_is_kept(cpu: cb.Device) -> None:
    """The values of a get are those at its call, and later calls see all of a put."""
    x = await cpu.put(X)
    before = x.get()
    cpu.fill(x, -1.0)
    turned = x.T.get()
    cpu.fill(x, -2.0)
    np.testing.assert_array_equal(await before, X)
    np.testing.assert_array_equal(await turned, np.full((64, 64), -1.0))
    values = X.copy()
    y = cpu.put(values, out=x)
    values[:] = 0.0
    sums = (y + 1.0).get()
    cpu.fill(x, 2.0)
    np.testing.assert_array_equal(await sums, X + 1.0)
    np.testing.assert_array_equal(await x.get(), np.full((64, 64), 2.0))


async def test_a_part_that_waits_delays_nothing_else(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with cb.device("cpu", **options("thread")) as cpu, asyncio.timeout(BOUND):
        try:
            slow = cpu.actor_of(cb.Props(Slow))
            x = await cpu.put(X)
            filled = slow.call(Slow.fill, x, 7.0, gate.path)
            large = [x.get(), x.get()]
            with pytest.raises(cb.MailboxFull, match="are in use"):
                x.get()
            await gate.reached()
            assert await cpu.full(3, 1.0) is not None
            assert not any(one.done() for one in large)
        finally:
            await gate.let_through()
            gate.open_for_good()
        await filled
        assert [(await one)[0, 0] for one in large] == [7.0, 7.0]


async def test_a_get_of_what_failed_raises_its_error_and_returns_its_memory(cpu: cb.Device) -> None:
    bad = cpu.solver.cholesky(cpu.put(-np.eye(64, dtype="f4")))
    with pytest.raises(cb.NumericalError):
        await bad.get()
    await cpu.drain()
    assert (await cpu.stats()).staged_bytes == 0
    np.testing.assert_array_equal(await cpu.put(X).get(), X)


async def test_a_lost_context_ends_transfers_and_returns_their_memory() -> None:
    async with cb.device("cpu", **options("process")) as cpu, asyncio.timeout(BOUND):
        x = await cpu.put(X)
        asked = [x.T.get(), cpu.put(X, non_blocking=True)]
        pid = cpu.health().host_pid
        assert pid is not None
        generation = cpu.generation
        os.kill(pid, signal.SIGKILL)
        for one in asked:
            with contextlib.suppress(cb.ContextLost):  # it may have been faster than the signal
                await one
        await cpu.watch_generation().changed(generation)
        await cpu.ready()
        np.testing.assert_array_equal(await cpu.put(X).get(), X)


@pytest.mark.slow
def test_room_that_only_leases_hold_is_refused_in_time() -> None:
    with cb.sync.device("cpu", **options("thread")) as gpu:
        lease = gpu.host_empty(SMALL // 4)
        assert lease.nbytes == SMALL
        for call in (lambda: gpu.put(X), lambda: gpu.zeros((64, 64)).get(), lambda: gpu.host_empty(SMALL // 4)):
            with pytest.raises(cb.MailboxFull, match="max_staged_bytes"):
                bounded(call)
        del lease
        np.testing.assert_array_equal(bounded(lambda: gpu.put(X).get()), X)


def test_beside_a_lease_arrays_go_in_parts() -> None:
    with cb.sync.device("cpu", **options("thread", max_staged_bytes=4 * SMALL)) as gpu:
        lease = gpu.host_empty(SMALL // 2)
        np.testing.assert_array_equal(bounded(lambda: gpu.put(X).T.get()), X.T)
        assert lease.shape == (SMALL // 2,)


def test_what_can_never_fit_is_not_worth_a_retry() -> None:
    with cb.sync.device("cpu", **options("thread")) as gpu:
        with pytest.raises(cb.MailboxFull, match="larger than all that may be staged") as refused:
            bounded(lambda: gpu.host_empty(SMALL))
        assert not refused.value.retryable


async def test_a_recording_refuses_a_put_in_parts() -> None:
    async with cb.device("cpu", **options("thread")) as cpu:
        with pytest.raises(cb.UnsupportedOp, match="copy before the recording"), cpu.record():
            cpu.put(X)
        assert (await cpu.stats()).staged_bytes == 0


@pytest.mark.parametrize("one, other", [("process", "process"), ("process", "loop")])
async def test_copies_between_devices(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with pair(one, other, max_staged_bytes=SMALL, max_in_flight=4) as (a, b), asyncio.timeout(BOUND):
        x = await a.put(X)
        for view in LAYOUTS.values():
            want = view(X)
            np.testing.assert_array_equal(await (await view(x).to(b)).get(), want)
        target = await b.zeros((64, 128))
        await b.put(x.T, out=target[:, ::2])
        np.testing.assert_array_equal(await target[:, ::2].get(), X.T)


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (0, 3), (3, 0), (5, 7), (2, 3, 4), (1, 1, 100), (100, 1), (2, 2, 2, 50)]
)
@pytest.mark.parametrize("most", [8, 24, 100, 10_000])
def test_blocks_divide_an_array(shape: tuple[int, ...], most: int) -> None:
    seen = np.zeros(shape, "i8")
    for index in blocks(shape, 8, most):
        block: Any = seen[(*index, ...)]  # type: ignore[arg-type]
        assert block.nbytes <= most
        assert block.flags.c_contiguous
        block += 1
    assert (seen == 1).all()


def test_a_window_has_lanes_for_all_parts_where_there_is_memory() -> None:
    pool = ArenaPool(1 << 20, lambda arena: None, shared=False)
    whole, part = Window(pool, 5000, 4), Window(pool, 2 << 20, 4)
    assert whole.lanes == 1
    assert part.slot.nbytes < 2 << 20
    assert part.lanes >= 2
    assert part.lanes * part.lane <= part.slot.nbytes
    for window in (whole, part):
        window.give()
    assert pool.stats.used == 0
    pool.close()
