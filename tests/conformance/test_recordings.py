"""Recordings over every backend and isolation: replays give what the ops give when they are called."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from recordings_lab import DEVICES, drawn, lose, opened, skip_unless_required

import callboard as cb


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    yield from opened(request.param)


@pytest.fixture
def dev(session: cb.sync.Device) -> cb.sync.Device:
    return session


def layers(dev: cb.sync.Device, x: Any, ws: list[Any]) -> Any:
    for w in ws:
        x = dev.tensor.permutation(dev.blas.gemm(x, w, alpha=0.1), "ij", "ij", op_a="relu")
    return x


def test_a_chain_gives_what_its_ops_give(dev: cb.sync.Device) -> None:
    ws = [dev.put(drawn(64, 64, seed=i)) for i in range(4)]
    x = dev.put(drawn(32, 64))
    with dev.record(x=x) as rec:
        rec.returns(layers(dev, x, ws))
    assert [node.op for node in rec.nodes[:2]] == ["blas.gemm", "tensor.permutation"]
    for seed in range(3):  # recorded with the first, then replayed
        new = drawn(32, 64, seed=10 + seed)
        want = layers(dev, dev.put(new), ws).get()
        assert np.array_equal(rec.replay(x=new).get(), want)
    rec.close()


def test_refs_take_the_place_of_arrays(dev: cb.sync.Device) -> None:
    """Two sets of buffers in turn, then more of them than are kept."""
    w, bias = dev.put(drawn(16, 16)), dev.put(drawn(16))
    xs = [dev.put(drawn(8, 16, seed=i)) for i in range(12)]
    with dev.record(x=xs[0]) as rec:
        rec.returns(dev.blas_lt.matmul(xs[0], w, bias=bias, epilogue="bias"))
    want = [dev.blas_lt.matmul(x, w, bias=bias, epilogue="bias").get() for x in xs]
    for at in [0, 1, 0, 1, 0, 1, *range(12), *range(12), *reversed(range(12))]:
        assert np.array_equal(rec.replay(x=xs[at]).get(), want[at])
    assert rec.replay().shape == (8, 16)
    assert np.array_equal(rec.replay().get(), want[0]), "a ref stays in the array's place"
    stats = rec.stats()
    assert stats.buffers == 8
    assert stats.recorded + stats.updated > 12
    assert stats.updated, "the graph that was not used for longest takes other arrays"
    assert stats.device_nodes
    rec.close()


def test_many_replays_are_one_message(dev: cb.sync.Device) -> None:
    one, total = dev.put(np.ones(5, "f4")), dev.zeros(5)
    with dev.record() as rec:
        dev.blas.axpy(one, total)
    assert rec.replay(1000).result(60) is None
    assert total.get().tolist() == [1000.0] * 5
    assert rec.stats().replays == 1000
    rec.close()


def test_replays_until_it_is_enough(dev: cb.sync.Device) -> None:
    """``left`` is halved until it is less than half of the least number: then it is 0."""
    left, total, one = dev.put(np.float32(1e-30)), dev.zeros(1), dev.put(np.ones(1, "f4"))
    with dev.record() as rec:
        dev.blas.scal(left.reshape(1), alpha=1e-6)
        dev.blas.axpy(one, total)
    assert rec.replay_while(left, most=100) == 3
    assert total.get()[0] == 3
    dev.fill(left, 1e-30)
    assert rec.replay_while(left, most=100, every=5) == 5
    dev.fill(left, 1.0)
    assert rec.replay_while(left, most=4, every=3) == 4
    assert total.get()[0] == 12
    with pytest.raises(cb.ShapeError, match="name a 0-d array that the recording writes"):
        rec.replay_while(one, most=3)
    rec.close()


def test_random_numbers_go_on(dev: cb.sync.Device) -> None:
    """What replays draw is what the calls would have drawn, also among calls."""
    ours, theirs = dev.rng.generator(seed=7), dev.rng.generator(seed=7)
    other = dev.rng.generator("xorwow", seed=3)
    twin = dev.rng.generator("xorwow", seed=3)
    with dev.record() as rec:
        rec.returns(ours.normal(6), other.uniform(3), ours.bits(3))
    assert ours.position == 0
    for turn in range(4):
        got = [ref.get() for ref in rec.replay()]
        want = [theirs.normal(6).get(), twin.uniform(3).get(), theirs.bits(3).get()]
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True)), turn
        assert np.array_equal(ours.uniform(2).get(), theirs.uniform(2).get())
    total, draws = dev.zeros(4), dev.empty(4)
    with dev.record() as summed:
        dev.blas.axpy(ours.uniform(out=draws), total)
    summed.replay(5)
    assert np.allclose(total.get(), sum(theirs.uniform(4).get() for _ in range(5)), rtol=1e-6)
    for recording in (rec, summed):
        recording.close()


def test_transforms_sparse_products_and_copies(dev: cb.sync.Device) -> None:
    dense = drawn(12, 12) * (drawn(12, 12, seed=1) > 0)
    a = dev.sparse.from_scipy(scipy.sparse.csr_array(dense))
    x = dev.put(drawn(12, seed=2))

    def chain(x: Any) -> Any:
        spectrum = dev.fft.rfft(x)
        back = dev.fft.irfft(spectrum)
        y = dev.sparse.sp_mv(a, back)
        out = dev.zeros((2, 12))
        dev.copy(y, out[0])
        dev.fill(out[1, 3:7], 2.5)
        return out

    with dev.record(x=x) as rec:
        rec.returns(chain(x))
    for seed in range(3):
        new = drawn(12, seed=seed)
        want = chain(dev.put(new)).get()
        assert np.allclose(rec.replay(x=new).get(), want, rtol=1e-6, atol=1e-6)
    rec.close()


def test_a_recording_inside_another(dev: cb.sync.Device) -> None:
    """It has arrays of its own there; alone it goes on as before."""
    w, numbers, twin = dev.put(drawn(8, 8)), dev.rng.generator(seed=2), dev.rng.generator(seed=2)
    x = dev.put(drawn(8, 8, seed=1))
    with dev.record(x=x) as layer:
        layer.returns(dev.blas.gemm(dev.tensor.permutation(x, "ij", "ij", op_a="relu"), w))
    with dev.record() as noise:
        noise.returns(numbers.normal((8, 8)))
    with dev.record(x=x) as whole:
        y = layer.replay(x=layer.replay(x=layer.replay(2)))
        total = dev.copy(noise.replay())
        dev.blas.axpy(y.reshape(-1), total.reshape(-1))
        whole.returns(y, total)
        with pytest.raises(TypeError, match="while recording pass a GpuRef"):
            layer.replay(x=drawn(8, 8))
    assert len(whole.nodes) == 11
    for seed in range(2):
        new = drawn(8, 8, seed=seed)
        want = layer.replay(x=new).get()
        for _ in range(2):
            want = layer.replay(x=want).get()
        got, summed = whole.replay(x=new)
        assert np.array_equal(got.get(), want)
        assert np.allclose(summed.get(), want + twin.normal((8, 8)).get(), rtol=1e-5, atol=1e-5)
    for recording in (layer, noise, whole):
        recording.close()


def test_a_clone_has_results_of_its_own(dev: cb.sync.Device) -> None:
    x, w, numbers = dev.put(drawn(4, 4)), dev.put(drawn(4, 4, seed=1)), dev.rng.generator(seed=3)
    with dev.record(x=x) as rec:
        rec.returns(dev.blas.gemm(x, w), numbers.uniform(3))
    twin = rec.clone()
    assert twin.inputs == rec.inputs
    first, second = rec.replay(), twin.replay(x=2 * drawn(4, 4))
    assert np.allclose(second[0].get(), 2 * drawn(4, 4) @ drawn(4, 4, seed=1), rtol=1e-5, atol=1e-5)
    again = dev.rng.generator(seed=3)
    assert np.array_equal(first[1].get(), again.uniform(3).get())
    assert np.array_equal(second[1].get(), again.uniform(3).get()), "they draw from the same stream"
    assert first[0].allocation is not second[0].allocation
    rec.close()
    assert twin.replay()[0].shape == (4, 4)
    twin.close()
    with dev.record() as quiet:
        dev.fill(x, 3.0)
    assert quiet.clone().replay().result(60) is None
    quiet.close()


def test_expressions_are_recorded(dev: cb.sync.Device) -> None:
    """Compiled from text, in a chain with products; sums too."""
    mixed, total = cb.elementwise("z = alpha * x + max(y, 0)"), cb.reduction("sum(x * x)", axis=0)
    x, w = dev.put(drawn(24, 24)), dev.put(drawn(24, 24, seed=1))

    def chain(x: Any) -> Any:
        return total(mixed(0.5, x, dev.blas.gemm(x, w)))

    with dev.record(x=x) as rec:
        rec.returns(chain(x))
    for seed in range(3):
        new = drawn(24, 24, seed=seed)
        assert np.allclose(rec.replay(x=new).get(), chain(dev.put(new)).get(), rtol=1e-5)
    rec.close()


def test_libraries_beside_each_other(dev: cb.sync.Device) -> None:
    """Branches of one graph where the device has them: transforms beside products, then both."""
    a, x = dev.put(drawn(48, 48)), dev.put(drawn(48, 48, seed=1))

    def both(x: Any) -> Any:
        product, spectrum = x, x
        for _ in range(4):
            product = dev.blas.gemm(product, a, alpha=0.1)
            spectrum = dev.fft.irfft(dev.fft.rfft(dev.tensor.permutation(spectrum, "ij", "ji")))
        dev.blas.axpy(spectrum.reshape(-1), product.reshape(-1))
        return product

    with dev.record(x=x) as rec:
        rec.returns(both(x))
    for seed in range(4):
        new = drawn(48, 48, seed=seed)
        want = both(dev.put(new)).get()
        assert np.allclose(rec.replay(3, x=new).get(), want, rtol=1e-5, atol=1e-5)
    rec.close()


def spd(n: int, seed: int) -> Any:
    a = drawn(n, n, seed=seed, dtype="f8")
    return a @ a.T + n * np.eye(n)


def test_a_factorisation_fails_at_the_replay_that_it_fails_in(dev: cb.sync.Device) -> None:
    """Two of them, whose outcomes may lie in the same memory."""
    a, b, rhs = dev.put(spd(6, 1)), dev.put(spd(6, 2)), dev.put(drawn(6, 1, dtype="f8"))
    with dev.record(a=a, b=b) as rec:
        first, second = dev.solver.cholesky(a), dev.solver.cholesky(b)
        x = dev.blas.gemm(second, dev.blas.gemm(first, rhs))
        rec.returns(first, x)
    good = rec.replay()
    assert np.allclose(good[0].get(), np.linalg.cholesky(spd(6, 1)))
    for bad in ("a", "b"):
        with pytest.raises(cb.NumericalError, match="positive") as failed:
            rec.replay(**{bad: -spd(6, 1)})[1].get()
        note = "".join(failed.value.__notes__)
        assert f"step {1 if bad == 'a' else 2} of 4 of a recording: solver." in note
        assert "test_recordings.py" in note
        with pytest.raises(cb.NumericalError):
            dev.copy(x).get()  # whoever reads it fails from the same cause
        assert np.allclose(rec.replay(**{bad: spd(6, 3)})[0].get(), np.linalg.cholesky(spd(6, 3)))
    rec.close()


def test_calls_and_replays_take_turns(dev: cb.sync.Device) -> None:
    """Workspaces are shared by calls, on one stream, and replays, on another: neither may begin before the other."""
    a, b = dev.put(drawn(200, 200)), dev.put(drawn(200, 200, seed=1))
    want, other = dev.blas.gemm(a, b).get(), dev.blas.gemm(b, a).get()
    with dev.record() as rec:
        rec.returns(dev.blas.gemm(a, b))
    for _ in range(20):
        replayed, called = rec.replay(), dev.blas.gemm(b, a)
        assert np.array_equal(called.get(), other)
        assert np.array_equal(replayed.get(), want)
    c = dev.put(drawn(200, 200))
    with dev.record() as chain:
        dev.blas.gemm(a, c, out=b)
    for _ in range(5):
        chain.replay()
        c = dev.blas.gemm(b, a, out=c, alpha=1e-3)
    assert np.isfinite(c.get()).all()
    for recording in (rec, chain):
        recording.close()


def test_what_a_recording_uses_is_given_back(dev: cb.sync.Device) -> None:
    x = dev.put(drawn(64, 64))
    before = dev.stats()
    for turn in range(50):
        with dev.record() as rec:
            y = dev.blas.gemm(x, x)
            rec.returns(dev.blas.gemm(y, x))
        got = rec.replay()
        if turn % 2:
            rec.close()
        del rec, y
    assert got.get().shape == (64, 64)
    del got
    dev.drain()
    after = dev.stats()
    assert after.buffers <= before.buffers + 1  # the last, which may not have been freed yet
    assert after.plans["graph"].entries <= 1


MISSING = r"x, f32\[4, 16\].*in0, f32\[16, 16\].*replay\(x=\.\.\., in0=\.\.\.\)"


@pytest.mark.slow
def test_lasting_use_takes_no_more(dev: cb.sync.Device) -> None:
    """A hundred thousand replays; then ten thousand recordings, each of which is replayed, and closed or dropped."""
    one, total = dev.put(np.ones(4, "f8")), dev.zeros(4, "f8")
    with dev.record() as rec:
        dev.blas.axpy(one, total)
        dev.blas.axpy(one, total, alpha=2.0)
    for _ in range(9):
        rec.replay(10_000)
    for _ in range(10_000):
        rec.replay()
    assert total.get().tolist() == [300_000.0] * 4
    rec.close()

    def recorded(count: int) -> tuple[int, int]:
        for turn in range(count):
            with dev.record() as short:
                short.returns(dev.blas.gemm(a, dev.blas.gemm(a, a)))
            short.replay()
            if turn % 2:
                short.close()
            if turn % 100 == 0:
                dev.drain()
        dev.drain()
        stats = dev.stats()
        return stats.used_bytes, stats.free_bytes

    a = dev.put(drawn(16, 16))
    used, free = recorded(500)
    later_used, later_free = recorded(9_500)
    assert later_used <= used + 4096
    if dev.backend == "cuda":  # memory of the machine is shared with all that runs on it
        assert later_free >= free - (64 << 20)


@pytest.mark.parametrize("where", [p for p in DEVICES if "process" in str(p.values[0])])
def test_after_a_loss_it_is_recorded_again(where: str) -> None:
    for dev in opened(where):
        w, x, numbers = drawn(16, 16), drawn(4, 16, seed=1), dev.rng.generator(seed=5)
        weights, given = dev.put(w), dev.put(x)
        with dev.record(x=given) as rec:
            noise = numbers.uniform((4, 16))
            rec.returns(dev.blas.gemm(given, weights), noise)
        first, drawn_first = (ref.get() for ref in rec.replay())
        lose(dev)
        with pytest.raises(
            cb.GpuRefStale, match=r"x, f32\[4, 16\].*in0, f32\[16, 16\].*replay\(x=\.\.\., in0=\.\.\.\)"
        ):
            rec.replay()
        with pytest.raises(cb.GpuRefStale, match="in0, "):
            rec.replay(x=x)
        again, drawn_next = (ref.get() for ref in rec.replay(x=x, in0=w))
        assert np.array_equal(again, first)
        twin = dev.rng.generator(seed=5)
        assert np.array_equal(twin.uniform((4, 16)).get(), drawn_first)
        assert np.array_equal(twin.uniform((4, 16)).get(), drawn_next)
        assert rec.stats().replays == 1, "counted anew in each context"
        lose(dev)
        rec.close()


@pytest.mark.parametrize("where", DEVICES)
async def test_chains_that_come_again_are_recorded_by_themselves(where: str) -> None:
    """With arrays that are dropped, other inputs, and in place."""
    async with contextlib.AsyncExitStack() as stack:
        isolation, _, which = where.partition(":")
        options: Any = {"isolation": isolation, "standby": None, "auto_record": True}
        try:
            dev = await stack.enter_async_context(cb.device(which, **options))
        except cb.BackendUnavailable as e:
            skip_unless_required(which, e)
        ws = [dev.put(drawn(32, 32, seed=i)) for i in range(3)]
        total, want = dev.zeros((8, 32)), np.zeros((8, 32), "f4")
        await dev.drain()
        for turn in range(12):
            new = drawn(8, 32, seed=turn)
            x = await dev.put(new)
            y = layers(dev, x, ws)
            dev.blas.axpy(y.reshape(-1), total.reshape(-1))
            got = await y.get()
            await dev.drain()
            for w in range(3):
                new = np.maximum(0.1 * (new @ drawn(32, 32, seed=w)), 0)
            want += new
            assert np.allclose(got, new, rtol=1e-3, atol=1e-4)
        assert np.allclose(await total.get(), want, rtol=1e-3, atol=1e-3)
        stats = await dev.stats()
        assert stats.recorded == 6 * 9, "seven calls are one, from the fourth time on"
        assert stats.plans["graph"].entries == 1


CANNOT: dict[str, tuple[Callable[[cb.sync.Device, Any], Any], str]] = {
    "upload": (lambda dev, x: dev.put(np.ones(3, "f4")), "memory.upload cannot be recorded: it copies from or to host"),
    "download": (lambda dev, x: x.get(), "memory.download cannot be recorded"),
    "number": (lambda dev, x: dev.blas.dot(x[0], x[1]), "blas.dot cannot be recorded: it is answered with a number"),
    "extents": (lambda dev, x: dev.sparse.from_dense(x), "cannot be recorded: the host must read data first"),
}


@pytest.mark.parametrize("what", CANNOT)
def test_an_op_that_cannot_be_recorded_is_named(dev: cb.sync.Device, what: str) -> None:
    call, message = CANNOT[what]
    x = dev.put(drawn(4, 4))
    with dev.record(x=x) as rec:
        with pytest.raises(cb.UnsupportedOp, match=message):
            call(dev, x)
        rec.returns(dev.blas.gemm(x, x))
    assert np.allclose(rec.replay().get(), drawn(4, 4) @ drawn(4, 4), rtol=1e-4), "the block may go on"
    rec.close()
