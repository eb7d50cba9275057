"""Behaviour specific to the CPU library; that of every backend is in the conformance suites."""

import ctypes
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu.blas import CpuBlas
from callboard.backends.cpu.blas.routines import INT_MAX, routine
from callboard.backends.cpu.stream import CpuStream
from callboard.core.backend import AccelDevice, DeviceInfo
from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.blas import Axpy, Gemm, GemmGrouped, Nrm2, Scal
from callboard.testing.session import LibrarySession


def array(*shape: int, dtype: str = "f32", strides: tuple[int, ...] | None = None) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


@pytest.fixture
def stream() -> Any:
    stream = CpuStream(0)
    yield stream
    stream.close()


@pytest.fixture
def library(stream: CpuStream) -> CpuBlas:
    from callboard.backends.cpu.device import CpuDevice

    device: AccelDevice = CpuDevice(DeviceInfo("cpu", 0, "CPU-0", "test", 0))
    return CpuBlas(device, stream)


def test_a_launch_returns_before_the_work_is_done(library: CpuBlas, stream: CpuStream) -> None:
    gate = threading.Event()
    x, y = np.ones(4), np.full(4, 2.0)
    plan = library.prepare(Axpy(x=array(4, dtype="f64"), y=array(4, dtype="f64")))
    stream.submit(gate.wait, 45.0)
    status = library.launch(stream, plan, x.ctypes.data, y.ctypes.data, 3.0)
    assert y.tolist() == [2, 2, 2, 2]
    gate.set()
    stream.synchronize()
    assert status is not None
    status.check(b"")
    assert y.tolist() == [5, 5, 5, 5]


def test_a_factor_on_the_device_is_read_when_its_turn_comes(library: CpuBlas, stream: CpuStream) -> None:
    gate = threading.Event()
    x, alpha = np.ones(3), np.array(1.0)
    plan = library.prepare(Scal(x=array(3, dtype="f64"), alpha=array(dtype="f64")))
    stream.submit(gate.wait, 45.0)
    library.launch(stream, plan, x.ctypes.data, alpha.ctypes.data)
    alpha[...] = 7
    gate.set()
    stream.synchronize()
    assert x.tolist() == [7, 7, 7]


def test_routines_are_called_without_the_gil() -> None:
    """Else a large product would stop the host's admitting thread, and a whole thread-isolated application."""
    python_api = type(ctypes.PYFUNCTYPE(None)())._flags_  # type: ignore[attr-defined]
    assert type(routine("dgemm"))._flags_ != python_api  # type: ignore[attr-defined]


def test_a_product_writes_where_it_is_told_without_a_copy() -> None:
    """The memory of a result of 4 MiB does not grow by another result."""
    with LibrarySession("cpu") as session:
        a = session.put(np.eye(1024, dtype="f4"))
        out = session.empty((1024, 2048), "f32")
        before = out.address
        tracemalloc.start()
        try:
            result = session.submit(Gemm(a=a, b=a, out=out[:, 1024:]))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < result.nbytes
        assert result.address == before + 1024 * 4
        assert np.array_equal(session.get(out)[:, 1024:], np.eye(1024))


def test_sizes_beyond_a_c_int_are_refused_and_not_truncated() -> None:
    huge = INT_MAX + 1
    for op, says in (
        (Nrm2(x=array(huge)), f"x is f32[{huge}]; SciPy's BLAS counts and steps at most {INT_MAX} elements"),
        (Nrm2(x=array(2**16, 2**15)), "x is f32[65536, 32768]"),
        (Nrm2(x=array(2, strides=(huge,))), f"x is f32[2], strides ({huge},)"),
        (Gemm(a=array(1, huge), b=array(huge, 1)), f"a is f32[1, {huge}]"),
        (Gemm(a=array(2, 2, strides=(huge, 1)), b=array(2, 2)), "a is f32[2, 2], strides"),
        (
            GemmGrouped(a=(array(2, 2), array(huge, 1)), b=(array(2, 2), array(1, 1)), c=(array(2, 2), array(huge, 1))),
            "a is",
        ),
    ):
        reason = CpuBlas.why_not(op)
        assert reason is not None
        assert reason.startswith(says)
    assert CpuBlas.why_not(Gemm(a=array(2**16, 2**15), b=array(2**15, 1))) is None, "only extents count for matrices"


def test_what_is_refused_is_refused_before_it_runs() -> None:
    with LibrarySession("cpu") as session:
        x = session.empty(1)
        wide = type(x)(x.block, layout_of(x.dtype, (2,), (INT_MAX + 1,)), x.offset)
        with pytest.raises(UnsupportedOp, match=r"cpu, blas.nrm2: x is f32\[2\]"):
            session.submit(Nrm2(x=wide))


def test_a_routine_that_scipy_lacks_is_named() -> None:
    with pytest.raises(BackendUnavailable, match=r"this SciPy has no dgemm3m; install scipy>="):
        routine("dgemm3m")


@pytest.mark.parametrize(
    "name, result",
    [("ddot", ctypes.c_double), ("sdot", ctypes.c_float), ("idamax", ctypes.c_int), ("dgemm", None)],
)
def test_results_have_their_types(name: str, result: Any) -> None:
    assert routine(name).restype is result  # type: ignore[attr-defined]
