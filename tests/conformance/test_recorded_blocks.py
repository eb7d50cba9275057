"""Device-side control flow of a recording: if, while and switch, over every backend and isolation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from recordings_lab import DEVICES, drawn, lose, opened

import callboard as cb
from callboard.core.dtype import as_dtype


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    yield from opened(request.param)


@pytest.fixture
def dev(session: cb.sync.Device) -> cb.sync.Device:
    return session


def halving(dev: cb.sync.Device, x: Any, go: Any) -> None:
    """One turn of a loop that halves ``x`` until it is below 1: ``go`` is 1 where it is not."""
    dev.blas.scal(x.reshape(1), alpha=0.5)
    dev.elementwise.map("x >= 1", x=x, out=go)


def test_a_loop_runs_until_its_value_is_zero(dev: cb.sync.Device) -> None:
    x, go = dev.put(np.float64(1000.0)), dev.put(np.bool_(True))
    with dev.record(x=x, go=go) as rec:
        with rec.while_(go) as turns:
            halving(dev, x, go)
        rec.returns(x, turns)
    assert [ref.get().item() for ref in rec.replay()] == [1000 / 1024, 10]
    assert [ref.get().item() for ref in rec.replay()] == [1000 / 1024, 0], (
        "the value is looked at before the first turn"
    )
    assert [ref.get().item() for ref in rec.replay(x=np.float64(3.0), go=np.bool_(True))] == [0.75, 2]
    assert rec.nodes[0].within == ("while 0",)
    if dev.backend == "cuda":
        assert "conditional" in rec.stats().device_nodes
    rec.close()


def test_a_loop_has_an_end(dev: cb.sync.Device) -> None:
    go, total, one = dev.put(np.int32(1)), dev.zeros(1), dev.put(np.ones(1, "f4"))
    with dev.record() as rec:
        with rec.while_(go, most=7) as turns:
            dev.blas.axpy(one, total)
        rec.returns(turns)
    assert rec.replay().get() == 7
    rec.replay(3)
    assert total.get().tolist() == [28.0]
    rec.close()


VALUES = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]


@pytest.mark.parametrize("name", VALUES)
def test_what_is_not_zero(dev: cb.sync.Device, name: str) -> None:
    """Of every dtype; a float's sign is not looked at, a NaN is not 0."""
    dtype = as_dtype(name)
    values = [0, 1] + ([-1] if dtype.kind == "int" else []) + ([-0.0, 0.25, np.nan] if dtype.is_float else [])
    if dtype.is_integer:
        values.append(1 << (8 * dtype.itemsize - 2))
    value, out = dev.put(np.zeros((), dtype.np)), dev.zeros(2, "i32")
    with dev.record(value=value) as rec:
        with rec.if_(value):
            dev.fill(out[:1], 1)
        with rec.else_():
            dev.fill(out[1:], 1)
        rec.returns(out)
    for given in values:
        dev.fill(out, 0)
        taken = bool(np.asarray(given, "f8") != 0)
        assert rec.replay(value=np.array(given, dtype.np)).get().tolist() == [taken, not taken], given
    rec.close()


@pytest.mark.parametrize("name", ["u8", "i32", "i64"])
def test_a_switch_runs_the_case_of_its_number(dev: cb.sync.Device, name: str) -> None:
    which, out = dev.put(np.zeros((), as_dtype(name).np)), dev.zeros(3)
    with dev.record(which=which) as rec:
        with rec.switch(which) as case:
            with case(0):
                dev.fill(out, 10)
            with case(1):
                dev.fill(out[:1], 11)
                dev.fill(out[1:], 12)
            with case(3):
                dev.fill(out, 13)
        rec.returns(out)
    want = {0: [10.0] * 3, 1: [11.0, 12.0, 12.0], 2: [0.0] * 3, 3: [13.0] * 3, 4: [0.0] * 3}
    for given, filled in want.items():
        dev.fill(out, 0)
        assert rec.replay(which=np.array(given, as_dtype(name).np)).get().tolist() == filled
    if name != "u8":
        dev.fill(out, 0)
        assert rec.replay(which=np.array(-1, as_dtype(name).np)).get().tolist() == [0.0] * 3
    rec.close()


def test_blocks_in_blocks(dev: cb.sync.Device) -> None:
    """The length of a Collatz sequence: a loop around a choice; then a loop around a loop."""
    n, go, steps, one = (dev.put(np.int64(v)) for v in (7, 1, 0, 1))
    odd = dev.put(np.int64(0))
    with dev.record(n=n, go=go) as rec:
        dev.fill(steps, 0)
        with rec.while_(go):
            dev.elementwise.map("n % 2", n=n, out=odd)
            with rec.if_(odd):
                dev.elementwise.map("3 * n + 1", n=n, out=n)
            with rec.else_():
                dev.elementwise.map("n // 2", n=n, out=n)
            dev.elementwise.map("s + one", s=steps, one=one, out=steps)
            dev.elementwise.map("i64(n != 1)", n=n, out=go)
        rec.returns(steps)
    for start, length in ((7, 16), (27, 111), (1, 3)):
        assert rec.replay(n=np.int64(start), go=np.int64(1)).get() == length
    rec.close()

    outer, inner, total = (dev.put(np.int64(v)) for v in (1, 1, 0))
    with dev.record(outer=outer) as nested:
        with nested.while_(outer, most=3):
            dev.fill(inner, 4)
            with nested.while_(inner) as turns:
                dev.elementwise.map("i - 1", i=inner, out=inner)
                dev.elementwise.map("t + 10 ** k", t=total, k=turns, out=total)
        nested.returns(total)
    assert nested.replay().get() == 3 * 1111
    nested.close()


def test_what_a_loop_needs_from_before_it_stays(dev: cb.sync.Device) -> None:
    """Results without a name share memory, but not what a later turn reads with what an earlier one has made."""
    a, x = dev.put(drawn(16, 16) / 8), dev.put(drawn(16, 16, seed=1))
    left = dev.put(np.int64(0))

    def chain(x: Any, loop: Any) -> Any:
        y = dev.copy(x)
        loop(dev.blas.gemm(a, a), y)
        return y

    def turn(square: Any, y: Any) -> None:
        h = dev.blas.gemm(y, square)
        dev.blas.gemm(dev.tensor.permutation(h, "ij", "ij", op_a="relu"), square, out=y)

    with dev.record(x=x) as rec:

        def recorded(square: Any, y: Any) -> None:
            dev.fill(left, 5)
            with rec.while_(left):
                turn(square, y)
                dev.elementwise.map("i - 1", i=left, out=left)

        rec.returns(chain(x, recorded))

    def called(square: Any, y: Any) -> None:
        for _ in range(5):
            turn(square, y)

    for seed in range(3):
        new = drawn(16, 16, seed=seed)
        want = chain(dev.put(new), called).get()
        assert np.allclose(rec.replay(x=new).get(), want, rtol=1e-5, atol=1e-6)
    rec.close()


def test_a_recording_with_a_loop_inside_another(dev: cb.sync.Device) -> None:
    x, go, flag = dev.put(np.float64(40.0)), dev.put(np.bool_(True)), dev.put(np.int32(1))
    with dev.record(x=x, go=go) as halve:
        with halve.while_(go) as turns:
            halving(dev, x, go)
        halve.returns(turns)
    with dev.record(flag=flag, x=x, go=go) as whole:
        total = dev.zeros((), "i64")
        with whole.if_(flag):
            dev.copy(halve.replay(), total)
        whole.returns(total)
    assert [node.within for node in whole.nodes][-1] == ("if 0",)
    assert ("if 0", "while 1") in [node.within for node in whole.nodes]
    for given, want in ((1, 6), (0, 0), (1, 6)):
        new = {"x": np.float64(40.0), "go": np.bool_(True), "flag": np.int32(given)}
        assert whole.replay(**new).get() == want
    for recording in (halve, whole):
        recording.close()


def test_other_buffers_and_many_of_them(dev: cb.sync.Device) -> None:
    """A graph with conditions is made for each set of buffers, and never launched singly."""
    xs, go = [dev.put(np.float64(2.0**k)) for k in range(10)], dev.put(np.bool_(True))
    with dev.record(x=xs[0], go=go) as rec:
        with rec.while_(go) as turns:
            halving(dev, xs[0], go)
        rec.returns(turns)
    for _ in range(2):
        for k, x in enumerate(xs):
            assert rec.replay(x=x, go=np.bool_(True)).get() == k + 1
            dev.fill(x, 2.0**k)
    stats = rec.stats()
    assert stats.single == 0
    assert stats.recorded == 20
    rec.close()


def test_an_op_with_an_outcome(dev: cb.sync.Device) -> None:
    """Where outcomes are known at once it fails the replay; where they are copied behind it, it is refused by name."""
    a, go = dev.put(np.eye(3)), dev.put(np.int32(1))
    with dev.record(a=a) as rec:
        lower = dev.empty((3, 3), "f8")
        with rec.while_(go, most=4) as turns:
            dev.solver.cholesky(a, out=lower)
        rec.returns(turns)
    if dev.backend == "cuda":
        with pytest.raises(cb.UnsupportedOp, match=r"solver\.cholesky cannot be recorded where a value decides"):
            rec.prepare().result(60)
    else:
        assert rec.replay().get() == 4
        with pytest.raises(cb.NumericalError, match="positive") as failed:
            rec.replay(a=-np.eye(3)).get()
        assert "step 1 of 1 of a recording: solver.cholesky" in "".join(failed.value.__notes__)
        assert rec.replay(a=np.eye(3)).get() == 4
    rec.close()


def test_what_may_stay_as_it_was_keeps_its_failure(dev: cb.sync.Device) -> None:
    """An array that is only written where a value says so is read: what it had may be what it has."""
    flag, x = dev.put(np.int32(0)), dev.put(-np.eye(3))
    dev.drain()
    bad = dev.solver.cholesky(x)
    with dev.record(flag=flag) as rec:
        with rec.if_(flag):
            dev.fill(bad, 1.0)
        rec.returns(bad)
    with pytest.raises(cb.NumericalError):
        rec.replay().get()
    rec.close()


@pytest.mark.parametrize("where", [p for p in DEVICES if "process" in str(p.values[0])])
def test_blocks_are_recorded_again_after_a_loss(where: str) -> None:
    for dev in opened(where):
        x, go = dev.put(np.float64(5.0)), dev.put(np.bool_(True))
        with dev.record(x=x, go=go) as rec:
            with rec.while_(go) as turns:
                halving(dev, x, go)
            rec.returns(turns)
        assert rec.replay().get() == 3
        lose(dev)
        with pytest.raises(cb.GpuRefStale, match=r"replay\(x=\.\.\., go=\.\.\.\)"):
            rec.replay()
        assert rec.replay(x=np.float64(9.0), go=np.bool_(True)).get() == 4
        rec.close()


@pytest.mark.slow
def test_blocks_take_no_more_with_time(dev: cb.sync.Device) -> None:
    """Two thousand recordings with blocks in blocks, each replayed, and closed or dropped."""
    x, go, flag = dev.put(np.float64(1.0)), dev.put(np.bool_(True)), dev.put(np.int32(1))

    def recorded(count: int) -> tuple[int, int]:
        for turn in range(count):
            with dev.record(x=x, go=go) as rec:
                with rec.while_(go, most=20) as turns:
                    with rec.if_(flag):
                        halving(dev, x, go)
                    with rec.else_():
                        dev.fill(go, 0)
                rec.returns(turns)
            assert rec.replay(x=np.float64(8.0), go=np.bool_(True)).get() == 4
            if turn % 2:
                rec.close()
        dev.drain()
        stats = dev.stats()
        return stats.used_bytes, stats.free_bytes

    used, free = recorded(200)
    later_used, later_free = recorded(1_800)
    assert later_used <= used + 4096
    if dev.backend == "cuda":  # memory of the machine is shared with all that runs on it
        assert later_free >= free - (64 << 20)
