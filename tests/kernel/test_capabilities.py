import itertools

import pytest
from tests.kernel.probing import accepted, dtype_of, messages_of

from callboard.core.dtype import DTYPES
from callboard.core.op import Op, info_of
from callboard.kernel import ipc, managed
from callboard.kernel.array import Arange
from callboard.kernel.blas import Dotc, Gemm, GemmGrouped, Hemm, Rot, Trsm
from callboard.kernel.dnn import DropoutMask
from callboard.kernel.engine import Release
from callboard.kernel.fft import Fft, FftPlanMany, FftPlanManyInPlace, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.memory import Empty, Upload
from callboard.kernel.nvrtc import Launch
from callboard.kernel.sparse_lt import Matmul
from gpu_check.groups import ops_of

CASES = {
    Gemm: "f16 bf16 f32 f64 c64 c128 i8",
    GemmGrouped: "f16 bf16 f32 f64 c64 c128 i8",
    Dotc: "c64 c128",
    Hemm: "c64 c128",
    Rot: "f32 f64 c64 c128",
    Trsm: "f32 f64 c64 c128",
    Fft: "f16 c64 c128",
    Rfft: "f16 f32 f64",
    Irfft: "f16 c64 c128",
    IrfftOverwrite: "f16 c64 c128",
    FftPlanMany: "f16 f32 f64 c64 c128",
    FftPlanManyInPlace: "f16 f32 f64 c64 c128",
    Empty: " ".join(DTYPES),
    Upload: " ".join(DTYPES),
}


OPS = [
    pytest.param(backend, op, id=f"{backend}-{info_of(op).tag}")
    for backend in ("cpu", "cuda")
    for op in ops_of(backend)
]


@pytest.mark.parametrize("op, names", CASES.items(), ids=lambda v: v.__name__ if isinstance(v, type) else "")
def test_the_cpu_takes(op: type[Op[object, object]], names: str) -> None:
    assert " ".join(dtype.name for dtype in ops_of("cpu")[op].dtypes_of(op)) == names


@pytest.mark.parametrize("backend, op", OPS)
def test_what_is_declared_is_what_is_accepted(backend: str, op: type[Op[object, object]]) -> None:
    """The message's checks and the library's refusals agree with the declaration, in both directions."""
    library = ops_of(backend)[op]
    assert library.dtypes_of(op) == accepted(op, library)


def test_halves_are_asked_about_with_powers_of_two() -> None:
    """cuFFT transforms only those; its rules are asked here, which needs no GPU."""
    for op in (Fft, Rfft, Irfft, IrfftOverwrite, FftPlanMany, FftPlanManyInPlace):
        assert DTYPES["f16"] in accepted(op, ops_of("cuda")[op])


def test_an_op_that_the_library_does_not_launch_takes_nothing() -> None:
    memory = ops_of("cpu")[Empty]
    assert accepted(Gemm, memory) == []


def test_what_only_column_major_products_take_is_found() -> None:
    """cuSPARSELt takes single bytes and f32 so only; its rules are asked here, which needs no GPU."""
    names = {dtype.name for dtype in accepted(Matmul, ops_of("cuda")[Matmul])}
    assert names == {"f16", "bf16", "f32", "i8", "f8_e4m3", "f8_e5m2"}


@pytest.mark.parametrize("op", ops_of("cpu"), ids=lambda op: op.__name__)
def test_a_message_tells_the_dtype_that_it_is_counted_by(op: type[Op[object, object]]) -> None:
    makes = (Arange, Empty, ipc.Empty, ipc.OpenMemHandle, managed.Allocate, Launch, DropoutMask, Release)
    nothing = op in makes or info_of(op).library in ("collective", "event")
    found = [(dtype, message) for dtype in DTYPES.values() for message in itertools.islice(messages_of(op, dtype), 1)]
    assert found
    for dtype, message in found:
        assert dtype_of(message) is (None if nothing else dtype)
