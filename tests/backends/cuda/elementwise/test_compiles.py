"""NVRTC compiles the generated texts for an H100 or H200; no GPU is needed."""

import pytest

from callboard.backends.cuda import compiling
from callboard.backends.cuda.compiling import Job
from callboard.backends.cuda.elementwise.axes import walk_of
from callboard.backends.cuda.elementwise.map_text import map_text
from callboard.backends.cuda.elementwise.reduction_text import reduce_text
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import BackendUnavailable, ShapeError
from callboard.kernel.elementwise.functions import FUNCTIONS
from callboard.kernel.elementwise.language import REDUCTIONS, read
from callboard.kernel.elementwise.program import compiled
from callboard.kernel.elementwise.promotion import ELEMENTS
from callboard.kernel.elementwise.reduction import compiled_reduction

EVERY = [pytest.param(dtype, id=dtype.name) for dtype in ELEMENTS]


@pytest.fixture(autouse=True)
def nvrtc() -> None:
    try:
        compiling.load_nvrtc()
    except BackendUnavailable as e:
        pytest.skip(f"NVRTC is not installed: {e}")


def check(text: str) -> None:
    made = compiling.compile_now(compiling.load_nvrtc(), Job("elementwise.cu", text.encode(), "sm_90", "CUBIN"))
    assert made.image


@pytest.mark.slow
@pytest.mark.parametrize("dtype", EVERY)
def test_every_function_and_conversion_compiles(dtype: DType) -> None:
    calls = [f"{name}({', '.join('abc'[: function.arity])})" for name, function in FUNCTIONS.items()]
    statements, keep = ["first = where(a != a, b, c)"], []
    for call in [*calls, *(f"{other}(a)" for other in ELEMENTS)]:
        try:
            compiled(call, (dtype,) * len(read(call).inputs))
        except ShapeError:
            continue
        keep.append(f"r{len(keep)}")
        statements.append(f"{keep[-1]} = {call}")
    assert len(keep) > 30
    program = compiled("\n".join(statements), (dtype,) * 3, (), tuple(keep))
    dtypes = [dtype] * 3 + [program.steps[at].dtype for at in program.results]
    check(map_text(program, dtypes, walk_of((999,), [(1,)] * len(dtypes), [d.itemsize for d in dtypes], 3)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", EVERY)
def test_every_reduction_compiles(dtype: DType) -> None:
    for name in REDUCTIONS:
        try:
            reduction = compiled_reduction(f"{name}(x)", (dtype,))
        except ShapeError:
            assert dtype.is_complex
            continue
        sizes = [dtype.itemsize, reduction.result.itemsize]
        kept = walk_of((10, 20), [(1000, 7), (20, 1)], sizes, 0, packed=False)
        inner = walk_of((7,), [(1,)], sizes[:1], 0, beside=[(1000, 7)])
        for along in (True, False):
            check(reduce_text(reduction, (dtype, reduction.result), kept, inner, along))


def test_a_kernel_compiles() -> None:
    f32 = DTYPES["f32"]
    program = compiled("alpha * x + max(y, 0)", (f32, f32), (("alpha", "float"),))
    for shape, steps in (((1000,), [(1,)] * 3), ((10, 12, 7), [(1, 10, 120), (0, 7, 1), (84, 7, 1)])):
        check(map_text(program, [f32] * 3, walk_of(shape, steps, [4] * 3, 2)))
