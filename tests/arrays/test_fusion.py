"""Deferred element-wise functions: fusion into one kernel, with no observable effect but the time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.together import together

import callboard as cb
from callboard.arrays import parts
from callboard.core.ref import DeferredRef
from callboard.device.client import deferred

Ref = cb.sync.Ref


class Kernels:
    """How many kernels of expressions the block has launched, once it has ended."""

    def __init__(self, device: cb.sync.Device) -> None:
        self._device = device
        self.count = 0

    def _launches(self) -> int:
        self._device.drain()
        plans = self._device.stats().plans.get("elementwise")
        return 0 if plans is None else plans.hits + plans.misses

    def __enter__(self) -> "Kernels":
        self.count = -self._launches()
        return self

    def __exit__(self, *_: object) -> None:
        self.count += self._launches()


def pair(device: cb.sync.Device, n: int = 200) -> tuple[Ref, Ref, Any, Any]:
    rng = np.random.default_rng(n)
    a, b = rng.random((3, n), np.float32), rng.random((3, n), np.float32) + 1
    return device.put(a).result(), device.put(b).result(), a, b


def test_a_chain_is_one_kernel(session: cb.sync.Device) -> None:
    xp, (x, y, a, b) = session.xp, pair(session)
    before = session.stats().fused
    with Kernels(session) as kernels:
        found = xp.sqrt(x * x + y * y) * 0.5 - 1
        result = found.get()
    np.testing.assert_allclose(result, np.sqrt(a * a + b * b) * 0.5 - 1, rtol=1e-5, atol=1e-6)
    assert kernels.count == 1
    assert session.stats().fused - before == 5


def test_a_reduction_ends_the_kernel(session: cb.sync.Device) -> None:
    xp, (x, y, a, b) = session.xp, pair(session)
    with Kernels(session) as kernels:
        found = xp.sum(xp.exp(-x) * y, axis=1)
        assert found.get() == pytest.approx((np.exp(-a) * b).sum(1), rel=1e-5)
    assert kernels.count == 1


def test_softmax_is_three_kernels(session: cb.sync.Device) -> None:
    xp, (x, _, a, _) = session.xp, pair(session)
    with Kernels(session) as kernels:
        e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
        found = (e / xp.sum(e, axis=1, keepdims=True)).get()
    e_host = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(found, e_host / e_host.sum(1, keepdims=True), rtol=1e-5)
    assert kernels.count == 3


def test_a_result_that_is_read_again_and_again_is_stored(session: cb.sync.Device) -> None:
    xp, (x, _, a, _) = session.xp, pair(session)
    with Kernels(session) as kernels:
        e = xp.exp(x)
        sums = [xp.sum(e * k) for k in range(1, 6)]
        for k, found in enumerate(sums, 1):
            assert found.get() == pytest.approx(np.exp(a).sum() * k, rel=1e-4)
    assert kernels.count == 5 + 1, "it is stored when it has been a part of two kernels"


def test_what_is_dropped_costs_nothing(session: cb.sync.Device) -> None:
    x, y, *_ = pair(session)
    buffers = session.stats().buffers
    with Kernels(session) as kernels:
        found = x * y
        del found
        kept = (x + y) * (x - y)
        kept.result()
    assert kernels.count == 1
    assert session.stats().buffers == buffers + 1, "the result alone has memory"


WRITES: dict[str, Callable[[cb.sync.Device, Ref], Any]] = {
    "operator": lambda device, x: x.__iadd__(1.0),
    "assignment": lambda device, x: x.__setitem__((slice(None), slice(0, 5)), 7.0),
    "view": lambda device, x: x[1].__imul__(0.0),
    "put": lambda device, x: device.put(np.zeros(x.shape, np.float32), out=x),
    "op": lambda device, x: device.blas.scal(x.reshape(-1), 2.0),
    "free": lambda device, x: x.free(),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_comes_after_what_was_called_before(session: cb.sync.Device, write: str) -> None:
    xp, (x, y, a, b) = session.xp, pair(session)
    direct = x * 2.0
    through = xp.sqrt(direct) + y
    WRITES[write](session, x)
    np.testing.assert_allclose(direct.get(), a * 2, rtol=1e-6)
    np.testing.assert_allclose(through.get(), np.sqrt(a * 2) + b, rtol=1e-6)


def test_a_write_into_a_stored_part_comes_after_its_readers(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    part = x + 1.0
    reader = part * 2.0
    part.result()
    part *= 0.0
    np.testing.assert_allclose(reader.get(), (a + 1) * 2, rtol=1e-6)
    assert not part.get().any()


def test_a_dropped_part_of_a_stored_one_is_stored_too(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    first = x + 1.0
    second = first * 2.0
    readers = [second + float(k) for k in range(4)]
    first.result()
    del second
    for k, reader in enumerate(readers):
        np.testing.assert_allclose(reader.get(), (a + 1) * 2 + k, rtol=1e-6)


def test_a_write_into_a_deferred_array(session: cb.sync.Device) -> None:
    x, y, a, b = pair(session)
    with Kernels(session) as kernels:
        found = x + y
        same, before = found, found * 1.0
        found += x
        found *= 2.0
        np.testing.assert_allclose(same.get(), (a + b + a) * 2, rtol=1e-6)
        np.testing.assert_allclose(before.get(), a + b, rtol=1e-6)
        assert same is found
    assert kernels.count == 2


def test_a_write_reads_its_own_array_elsewhere(session: cb.sync.Device) -> None:
    x = session.array(np.arange(100.0))
    x += x[::-1] * 2.0
    np.testing.assert_array_equal(x.get(), np.arange(100.0) + np.arange(100.0)[::-1] * 2)


def test_errors_are_raised_by_the_call(session: cb.sync.Device) -> None:
    xp, (x, y, *_) = session.xp, pair(session)
    with pytest.raises(cb.ShapeError, match="shapes do not broadcast"):
        (x * 2.0) + session.array(np.zeros(7, np.float32))
    with pytest.raises(cb.ShapeError, match="bitwise_and"):
        (x + y) & (x + y)
    with pytest.raises(cb.ShapeError, match="300"):
        session.array(np.zeros(3, np.uint8)) + 300
    found = x + 1.0
    x.free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        x + 1.0
    found.free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        xp.exp(found)


def test_large_expressions_are_split(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    with Kernels(session) as kernels:
        found, host = x, a
        for k in range(3 * parts.PARTS):
            found, host = found * 1.01 + k, host * np.float32(1.01) + np.float32(k)
        np.testing.assert_allclose(found.get(), host, rtol=1e-4)
    assert 6 <= kernels.count <= 9
    many = [session.array(np.full(5, float(k))) for k in range(3 * parts.OPERANDS)]
    total = many[0]
    for one in many[1:]:
        total = total + one
    assert (total.get() == sum(range(3 * parts.OPERANDS))).all()
    sum_of_all = session.array(np.full(5, 1.0))
    for _ in range(40):
        sum_of_all = sum_of_all + sum_of_all  # 2**40 calls, if none were shared
    assert (sum_of_all.get() == 2.0**40).all()


def test_only_so_many_wait(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    with Kernels(session) as kernels:
        kept = [x + float(k) for k in range(5 * deferred.MOST)]
        session._port.flush()
        assert len(session._port.deferrals._refs()) <= 2 * deferred.MOST
        for k, one in enumerate(kept):
            np.testing.assert_allclose(one.get(), a + np.float32(k), rtol=1e-6)
    assert kernels.count == len(kept)


def test_halves_are_rounded_after_each_call(session: cb.sync.Device) -> None:
    a = np.array([1.0, 2048.0, 60000.0], np.float16)
    x = session.put(a)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(((x + 1.0) - 1.0).get(), (a + np.float16(1)) - np.float16(1))
        np.testing.assert_array_equal(((x * 2.0) * 0.5).get(), (a * np.float16(2)) * np.float16(0.5))


@pytest.mark.parametrize(
    "use",
    [
        *(lambda ref: ref.result(), lambda ref: ref.done(), lambda ref: ref.cancel(), lambda ref: ref.token()),
        *(lambda ref: ref[0], lambda ref: ref.T, lambda ref: ref.get(), lambda ref: ref.reshape(-1)),
    ],
)
def test_uses_that_need_the_array(session: cb.sync.Device, use: Callable[[Ref], Any]) -> None:
    x, _, a, _ = pair(session)
    found = x * 3.0
    assert isinstance(found, DeferredRef)
    assert "pending" in repr(found)
    assert isinstance(found, DeferredRef), "to show it computes nothing"
    use(found)
    assert not isinstance(found, DeferredRef)
    assert (found.dtype.name, found.shape, found.is_stale) == ("f32", a.shape, False)


def test_another_thread_can_need_it(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    with Kernels(session) as kernels:
        found = (x + 1.0) * 2.0
        results = together(found.get, [()] * 4)
    assert kernels.count == 1
    for result in results:
        np.testing.assert_allclose(result, (a + 1) * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        lambda ref: DeferredRef.allocation.fget(ref),
        *(DeferredRef.result, DeferredRef.done, DeferredRef.cancel, DeferredRef._why_stale),
    ],
)
def test_another_thread_computes_it_within_a_use(session: cb.sync.Device, use: Callable[[Ref], Any]) -> None:
    x, _, a, _ = pair(session)
    found = x + 1.0
    found.get()  # the other thread; the use has begun, as a method of the class that the ref had
    use(found)
    np.testing.assert_allclose(found.get(), a + 1, rtol=1e-6)


def test_threads_need_each_others_parts(session: cb.sync.Device) -> None:
    x, _, a, _ = pair(session)
    uses: list[Callable[[Ref, Ref], Any]] = [
        *(lambda one, _: one.get(), lambda _, two: two.get()),
        *(lambda one, _: (one * 3.0).get(), lambda one, two: (two + one).get()),
    ]
    for _ in range(100):
        one = x + 1.0
        two = one * 2.0
        results = together(lambda use, *refs: use(*refs), [(use, one, two) for use in uses])
        for result, factor in zip(results, (1, 2, 3, 3), strict=True):
            np.testing.assert_allclose(result, (a + 1) * factor, rtol=1e-5)


def test_what_an_op_reads_cannot_be_written_before_the_op_is_queued(
    session: cb.sync.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _, a, _ = pair(session)
    later = x + 1.0
    port: Any = session._port
    submit, free = port.submit, []

    def other() -> bool:
        """Whether another thread can see to what reads an array, which a write begins with."""
        if taken := port.deferrals.lock.acquire(blocking=False):
            port.deferrals.lock.release()
        return taken

    def submitted(op: Any, *args: Any, **kwargs: Any) -> Any:
        free.extend(together(other, [()]))
        return submit(op, *args, **kwargs)

    monkeypatch.setattr(port, "submit", submitted)
    total = session.xp.sum(later)
    monkeypatch.undo()
    assert free == [False]
    np.testing.assert_allclose(total.get(), (a + 1).sum(), rtol=1e-5)


def test_threads_write_what_others_have_read(session: cb.sync.Device) -> None:
    xp = session.xp
    for _ in range(40):
        x, _, a, _ = pair(session)
        later = x + 1.0
        uses: list[Callable[[], Any]] = [
            *(lambda x=x: x.fill(-5.0), lambda later=later: xp.sum(later).get()),
            *(lambda later=later: xp.max(later).get(), lambda later=later: (later * 2.0).get()),
        ]
        _, total, most, twice = together(lambda use: use(), [(use,) for use in uses])
        np.testing.assert_allclose(total, (a + 1).sum(), rtol=1e-5)
        np.testing.assert_allclose(most, (a + 1).max(), rtol=1e-6)
        np.testing.assert_allclose(twice, (a + 1) * 2, rtol=1e-6)


def test_what_was_called_before_a_recording_is_no_part_of_it(session: cb.sync.Device) -> None:
    x, y, a, b = pair(session)
    before = x + y
    with session.record() as recording:
        after = before * 2.0 + x
        recording.returns(after)
    x *= 0.0
    (found,) = (recording.replay(),)
    np.testing.assert_allclose(found.get(), (a + b) * 2, rtol=1e-6)
    late = found + 1.0
    y *= 0.0
    recording.replay()
    np.testing.assert_allclose(late.get(), (a + b) * 2 + 1, rtol=1e-6)


def test_conversions_are_parts(session: cb.sync.Device) -> None:
    xp = session.xp
    x = session.array(np.arange(50, dtype=np.int32))
    with Kernels(session) as kernels:
        found = xp.sum(xp.astype(x, xp.float64) / 2.0)
        assert found.item() == 612.5
    assert kernels.count == 1


# -- the setting -------------------------------------------------------------------------------------------------------


def test_without_fusion_each_call_is_a_kernel() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", fuse=False) as device:
        x, y, *_ = pair(device)
        with Kernels(device) as kernels:
            (x * y + x).get()
        assert kernels.count == 2
        assert device.stats().fused == 0


# -- any program -------------------------------------------------------------------------------------------------------

UNARY = "abs", "negative", "square", "sin", "floor"
BINARY = "add", "subtract", "multiply", "maximum", "less"
WAYS = ("unary", "binary", "number", "write", "write_number", "assign", "view", "total", "half", "get", "drop", "free")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 7), st.integers(0, 7)), min_size=3, max_size=25))
@example([("number", 0, 7), *(("unary", i, 2) for i in range(2, 8)), ("half", 7, 0)])
@np.errstate(all="ignore")  # squares of squares overflow
def test_any_program_gives_what_numpy_gives(session: cb.sync.Device, steps: list[tuple[str, int, int]]) -> None:
    xp = session.xp
    host: list[Any] = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.full((3, 4), 0.5, np.float32)]
    refs: list[Any] = [session.put(one) for one in host]
    for way, i, j in steps:
        a, b, x, y = host[i % len(host)], host[j % len(host)], refs[i % len(host)], refs[j % len(host)]
        match way:
            case "unary":
                made = getattr(np, UNARY[j % 5])(a), getattr(xp, UNARY[j % 5])(x)
            case "binary":
                name = BINARY[(i + j) % 5]
                made = getattr(np, name)(a, b).astype(np.float32), xp.astype(getattr(xp, name)(x, y), xp.float32)
            case "number":
                made = a * np.float32(0.75) + np.float32(j), x * 0.75 + j
            case "write":
                a += b
                x += y
                refs[i % len(host)] = x
                continue
            case "write_number":
                a *= np.float32(0.5)
                x *= 0.5
                refs[i % len(host)] = x
                continue
            case "assign":
                a[j % 3] = np.float32(i)
                x[j % 3] = float(i)
                continue
            case "view":
                made = a[::-1], x[::-1]
            case "total":
                made = np.broadcast_to(a.sum(0), a.shape).copy(), xp.sum(x, axis=0) + x * 0.0
                if not np.isfinite(a).all():
                    continue
            case "half":
                made = a.astype(np.float16).astype(np.float32), xp.astype(xp.astype(x, xp.float16), xp.float32)
            case "get":
                np.testing.assert_allclose(x.get(), a, rtol=2e-3, atol=1e-3)
                continue
            case _ if len(host) > 2:
                at = i % len(host)
                del host[at], refs[at]
                continue
            case _:
                continue
        host.append(made[0])
        refs.append(made[1])
    for a, x in zip(host, refs, strict=True):
        np.testing.assert_allclose(x.get(), a, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("fuse", [True, False])
def test_a_dtype_that_has_no_arithmetic_is_refused_at_the_call(fuse: bool) -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", fuse=fuse) as dev:
        x = dev.array([1.0, 2.0]).astype("f8_e4m3")
        for call in (lambda: x + 1, lambda: dev.xp.exp(x), lambda: x == x, lambda: dev.xp.where(x > 0, x, x)):
            with pytest.raises(cb.ShapeError, match=r"is f8_e4m3\[2\]; its dtype must be one of .*x\.astype converts"):
                call()
        assert (x.astype("f4") + 1).get().tolist() == [2.0, 3.0]
