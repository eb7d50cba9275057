"""``ctx.device``: the libraries of the device, called by a resident actor where it runs."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from tests.device.residents.conftest import backend, dev, isolation

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing]

__all__ = ["backend", "dev", "isolation"]

BOUND = 20.0


class Maths(cb.ResidentActor):
    """Calls libraries."""

    supervision = cb.OneForOne(
        {ZeroDivisionError: cb.Directive.RESTART, Exception: cb.Directive.RESUME}, max_restarts=3, within=60.0
    )

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        self.dev = ctx.device
        self.weights = self.dev.put(np.arange(16, dtype=np.float32).reshape(4, 4))

    def product(self, x: Any) -> np.ndarray:
        """An argument, an array of its own, and a result."""
        return self.dev.blas.gemm(x, self.weights).get()

    def chain(self, x: Any, steps: int) -> np.ndarray:
        """Results as operands."""
        y = self.dev.put(x)
        for _ in range(steps):
            y = self.dev.blas.gemm(y, self.weights)
        return y.get()

    def seen(self, x: Any) -> np.ndarray:
        """A result as an array of NumPy."""
        return np.from_dlpack(self.dev.blas.gemm(x, self.weights)).copy()

    def moved(self, x: Any, out: Any) -> None:
        """Arrays of the caller, copied and filled."""
        y = self.dev.copy(x)
        self.dev.copy(y, out)
        self.dev.fill(x, 7)

    def in_place(self, out: Any) -> None:
        """Writes into the caller's array."""
        self.dev.blas.gemm(self.weights, self.weights, out=out)

    def lend(self, x: Any) -> cb.GpuRef:
        """A result of an op, for the caller."""
        return self.ctx.ref(self.dev.blas.gemm(x, self.weights))

    def numbers(self, x: np.ndarray) -> list[Any]:
        """Ops that answer with a number."""
        blas = self.dev.blas
        return [blas.dot(x, x).result(), blas.nrm2(x).result(), blas.iamax(x).result()]

    def several(self, a: np.ndarray) -> list[np.ndarray]:
        """Several results; and extents that depend on data."""
        u, s, v = self.dev.solver.svd(a)
        found = self.dev.solver.syevdx_range(self.dev.put(a), -0.5, 1.5)
        return [u.get(), s.get(), v.get(), found.w.get()]

    def fails(self, how: str) -> Any:
        """Ops that cannot be done."""
        match how:
            case "shape":
                return self.dev.blas.gemm(self.weights, self.dev.zeros((3, 3)))
            case "singular":
                return self.dev.solver.cholesky(-np.eye(4, dtype=np.float32)).get()
            case "unwaited":
                self.dev.solver.cholesky(-np.eye(4, dtype=np.float32))
                return 1
            case "freed":
                self.weights.free()
                return self.dev.blas.gemm(self.weights, self.weights)
            case "memory":
                return self.dev.empty(1 << 50, "u8")
            case "token":
                return self.weights.token()
            case "library":
                return self.dev.nonesuch
            case "restart":
                return 1 / 0
        return None

    def used(self) -> int:
        """Bytes of arrays that are in use."""
        self.dev.zeros(1)
        return self.dev._port.memory.used

    def many(self, n: int) -> int:
        """Temporary arrays are given back."""
        for _ in range(n):
            self.dev.blas.gemm(self.weights, self.weights)
        return self.used()

    def torch(self, x: np.ndarray) -> list[float]:
        """Tensors as operands, refs as tensors."""
        torch = pytest.importorskip("torch")
        t = torch.from_numpy(x).to(self.ctx.torch_device)
        y = torch.from_dlpack(self.dev.blas.gemm(t, t))
        y += 1
        return [float(y.sum()), float((t @ t + 1).sum())]

    def beside(self, x: np.ndarray) -> list[Any]:
        """Ops that the actor's thread does not wait for, also on a CPU; one of them fails."""
        side, go = self.dev.beside(), threading.Event()
        if not self.ctx.is_cuda:
            side._port.stream.submit(go.wait, BOUND)
        y = side.blas.gemm(x.copy(), x.copy())  # whose operands are not kept
        idle = side._port.stream.query()
        own = self.dev.blas.gemm(x, x).get()
        go.set()
        side.synchronize()
        side.solver.cholesky(-np.eye(4, dtype=np.float32))
        with pytest.raises(cb.NumericalError):
            side.synchronize()
        return [y.get(), own, idle and not self.ctx.is_cuda]

    def kinds(self, x: np.ndarray) -> list[Any]:
        """Every library."""
        d = self.dev
        return [
            d.fft.irfft(d.fft.rfft(x), n=x.shape[-1]).get(),
            d.rng.fill_uniform(d.empty(4)).get(),
            d.tensor.contract(x, x, "ij", "jk", "ik").get(),
            d.copy(d.put(x)).get(),
            d.put(np.float32(5)).get(),
            d.full((2,), 7, "i32").get(),
            repr(d),
        ]


X = np.arange(16, dtype=np.float32).reshape(4, 4) + 1
W = np.arange(16, dtype=np.float32).reshape(4, 4)


async def test_arrays_of_the_caller_and_of_the_actor_are_operands(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    np.testing.assert_allclose(await maths.call(Maths.product, X), X @ W)
    np.testing.assert_allclose(await maths.call(Maths.product, dev.put(X)), X @ W)
    np.testing.assert_allclose(await maths.call(Maths.chain, X, 3), X @ W @ W @ W)


async def test_a_result_on_the_cpu_is_an_array_of_numpy(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    if dev.backend == "cpu":
        np.testing.assert_allclose(await maths.call(Maths.seen, X), X @ W)
    else:
        with pytest.raises(BufferError, match=r"on a GPU, where NumPy cannot read it; copy it with ref\.get"):
            await maths.call(Maths.seen, X)


async def test_an_op_inside_writes_an_array_of_the_caller(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    out = dev.zeros((4, 4))
    done = maths.call(Maths.in_place, out)
    np.testing.assert_allclose(await dev.copy(out).get(), W @ W)
    await done


async def test_arrays_of_the_caller_are_copied_and_filled(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    x, out = dev.put(X), dev.zeros((4, 4))
    await maths.call(Maths.moved, x, out)
    np.testing.assert_array_equal(await out.get(), X)
    np.testing.assert_array_equal(await x.get(), np.full((4, 4), 7))


async def test_a_result_is_lent_to_the_caller(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    before = await maths.call(Maths.used)
    ref = await maths.call(Maths.lend, X)
    np.testing.assert_allclose(await ref.get(), X @ W)
    np.testing.assert_allclose(await dev.blas.gemm(ref, ref).get(), X @ W @ X @ W)
    held = await maths.call(Maths.used)
    assert held > before
    del ref
    await dev.stats()
    assert await maths.call(Maths.used) == before


async def test_numbers_and_several_results(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    x = np.array([3, -4], np.float32)
    assert await maths.call(Maths.numbers, x) == [25.0, 5.0, 1]
    a = np.diag([1.0, 2.0, 3.0])
    u, s, v, w = await maths.call(Maths.several, a)
    np.testing.assert_allclose(u @ np.diag(s) @ v, a, atol=1e-12)
    np.testing.assert_allclose(w, [1.0])


async def test_what_cannot_be_done_is_the_callers_error(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    expected: dict[str, tuple[type[Exception], str]] = {
        "shape": (cb.ShapeError, "gemm"),
        "singular": (cb.NumericalError, "positive definite"),
        "unwaited": (cb.NumericalError, "positive definite"),
        "memory": (cb.OutOfMemory, "bytes"),
        "token": (TypeError, "no token"),
        "library": (AttributeError, "nonesuch"),
        "freed": (cb.GpuRefStale, "freed"),
    }
    for how, (kind, text) in expected.items():
        with pytest.raises(kind, match=text):
            await maths.call(Maths.fails, how)
    assert maths.restarts == 0


async def test_memory_is_flat_and_ends_with_the_instance(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    first = await maths.call(Maths.many, 10)
    assert await maths.call(Maths.many, 1000) == first
    with pytest.raises(ZeroDivisionError):
        await maths.call(Maths.fails, "restart")
    np.testing.assert_allclose(await maths.call(Maths.product, X), X @ W)
    assert await maths.call(Maths.many, 10) == first
    assert maths.restarts == 1


@pytest.mark.slow
async def test_tensors_of_torch_are_operands(dev: cb.Device) -> None:
    pytest.importorskip("torch")
    maths = dev.actor_of(cb.Props(Maths))
    ours, theirs = await maths.call(Maths.torch, X)
    assert ours == pytest.approx(theirs)


async def test_ops_run_beside_those_of_the_actor(dev: cb.Device) -> None:
    maths, x = dev.actor_of(cb.Props(Maths)), np.arange(16, dtype=np.float32).reshape(4, 4)
    beside, own, idle = await asyncio.wait_for(maths.call(Maths.beside, x), BOUND)
    assert not idle
    assert np.array_equal(beside, x @ x)
    assert np.array_equal(own, x @ x)


async def test_every_library_is_there(dev: cb.Device) -> None:
    maths = dev.actor_of(cb.Props(Maths))
    same, random, squared, copied, scalar, full, told = await maths.call(Maths.kinds, X)
    np.testing.assert_allclose(same, X, rtol=1e-5)
    assert ((random >= 0) & (random <= 1)).all()
    np.testing.assert_allclose(squared, X @ X)
    np.testing.assert_array_equal(copied, X)
    assert (scalar.shape, scalar[()]) == ((), 5)
    np.testing.assert_array_equal(full, np.full(2, 7, np.int32))
    assert f"{dev.backend}:0" in told
