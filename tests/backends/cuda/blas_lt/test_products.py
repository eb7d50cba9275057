"""How messages are mapped on cuBLASLt's calls, over a stand-in that executes them on host memory."""

import sys
from pathlib import Path
from typing import Any

import host_cublaslt
import numpy as np
import pytest
from host_cublaslt import HostCublasLt
from host_driver import HostDriver

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from blas_lab import place_matrix, values
from blas_lt_lab import BACKWARD, BGRAD, EPILOGUES, answer, aux_for, check, expected, message, turned, wide

from callboard.backends.cuda.blas_lt import cublaslt
from callboard.core.dtype import DTYPES
from callboard.core.errors import UnsupportedOp
from callboard.kernel.blas_lt import Matmul, MatmulBgrad

BOTH = (False, True)


@pytest.fixture
def lt(driver: HostDriver, monkeypatch: pytest.MonkeyPatch) -> HostCublasLt:
    """In place of ``nvmath.bindings.cublasLt``."""
    stand_in = HostCublasLt(driver)
    monkeypatch.setattr(cublaslt, "load_cublaslt", lambda: stand_in)
    kernels = {"_epilogue": host_cublaslt.epilogue, "_sums": host_cublaslt.sums}
    for name, kernel in kernels.items():
        monkeypatch.setattr(
            HostDriver, name, lambda self, kind, params, run=kernel: run(kind, params[0]), raising=False
        )
    return stand_in


def product(session: Any, epilogue: str, dtype_name: str, **options: Any) -> None:
    """One product, compared with its reference."""
    dtype = DTYPES[dtype_name]
    m, n, k = options.pop("extents", (5, 11, 7))
    batch, layout, extra = options.pop("batch", ()), options.pop("layout", "rows"), options.pop("extra", {})
    transpose_a, transpose_b = options.pop("transposes", (False, False))
    alpha, beta = options.pop("factors", (1.0, 0.0))
    a = values(dtype, (*batch, *((k, m) if transpose_a else (m, k))), 1)
    b = values(dtype, (k, n), 2).T if transpose_b else values(dtype, (k, n), 2)
    c = values(dtype, (*batch, m, n), 3) if beta else None
    bias = values(dtype, (n,), 4) if "bias" in epilogue else None
    operands: dict[str, Any] = {} if bias is None else {"bias": session.put(bias)}
    aux = None
    if epilogue in BACKWARD or epilogue in BGRAD[:2]:
        kept, aux = aux_for(epilogue, (*batch, m, n), dtype, 5)
        operands["aux"] = session.put(kept)
    as_given = [
        session.put(np.array(x, dtype.np if dtype.name == "f64" else "f4")) if extra else x for x in (alpha, beta)
    ]
    op = message(epilogue)(
        a=place_matrix(session, a, layout).ref,
        b=place_matrix(session, np.ascontiguousarray(b), layout).ref,
        c=None if c is None else session.put(c),
        alpha=as_given[0],
        beta=as_given[1],
        epilogue=epilogue,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        **operands,
        **options,
    )
    want = expected(
        epilogue,
        turned(wide(a), transpose_a),
        turned(wide(b), transpose_b),
        c=None if c is None else wide(c),
        alpha=alpha,
        beta=beta,
        bias=None if bias is None else wide(bias),
        aux=aux,
    )
    check(epilogue, answer(session, op), want, dtype, dtype, k)


@pytest.mark.parametrize("transpose_b", BOTH)
@pytest.mark.parametrize("transpose_a", BOTH)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_fused(session: Any, lt: HostCublasLt, epilogue: str, dtype: str, transpose_a: bool, transpose_b: bool) -> None:
    product(session, epilogue, dtype, transposes=(transpose_a, transpose_b), factors=(0.5, -2.0))


@pytest.mark.parametrize("layout", ["rows", "padded rows", "columns", "padded columns"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_layouts_batches_and_numbers_on_the_device(session: Any, lt: HostCublasLt, epilogue: str, layout: str) -> None:
    product(session, epilogue, "f32", layout=layout, batch=(3,), factors=(0.5, 1.0), extra={"on device": True})


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_in_several_steps_where_there_is_no_fused_kernel(
    session: Any, lt: HostCublasLt, epilogue: str, dtype: str
) -> None:
    lt.unknown = {2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512}
    product(session, epilogue, dtype, factors=(0.5, 2.0), batch=(2,))
    product(session, epilogue, dtype, extents=(5, 11, 0), factors=(0.5, 2.0))


@pytest.mark.parametrize("only_wide", BOTH)
def test_operands_may_start_anywhere(session: Any, lt: HostCublasLt, only_wide: bool) -> None:
    lt.only_wide = only_wide
    if only_wide:  # there is nothing that takes them, not even the plain product
        with pytest.raises(UnsupportedOp, match="starts at an address that is no multiple of 16 bytes"):
            product(session, "relu", "f32", layout="padded rows", extents=(5, 8, 8))
    else:
        product(session, "relu", "f32", layout="padded rows", extents=(5, 8, 8))
        assert lt.chosen == [23]


def test_the_algorithm_for_vectors_is_left_out_where_there_is_an_addend(session: Any, lt: HostCublasLt) -> None:
    product(session, "none", "f32", autotune=0)
    product(session, "none", "f32", factors=(1.0, 1.0))
    assert lt.chosen == [66, 66]


def test_fp8_scales_and_amax_go_where_they_belong(session: Any, lt: HostCublasLt) -> None:
    """Each factor's scale is that of the other in cuBLASLt's order, and an fp8 result is added to in bf16."""
    dtype = DTYPES["f8_e4m3"].np
    a, b = (np.round(values(DTYPES["f32"], s, i)).astype(dtype) for i, s in enumerate(((16, 32), (32, 48))))
    two, three, amax = session.put(np.float32(2)), session.put(np.float32(3)), session.put(np.float32(0))
    op = Matmul(
        a=session.put(a),
        b=place_matrix(session, b, "columns").ref,
        scale_a=two,
        scale_b=three,
        amax=amax,
        out_dtype="f8_e4m3",
    )
    want = 6 * (a.astype("f8") @ b.astype("f8"))
    got = answer(session, op)["out"].astype("f8")
    assert np.abs(got - np.clip(want, -448, 448))[np.abs(want) < 400].max() <= 16
    assert session.get(amax) == np.abs(want).max()


def test_closing_destroys_what_plans_hold(session: Any, lt: HostCublasLt) -> None:
    product(session, "gelu_bias", "f32")
    product(session, "gelu_bias", "f64")
    assert len(lt.live) == 10  # two descriptors with four layouts each
    for plan in session._plans.values():
        if hasattr(plan.state, "close"):
            plan.state.close()
    assert not lt.live
    session.close()
    assert lt.closed


def test_bias_gradients_of_factors_are_those_of_our_factors(session: Any, lt: HostCublasLt) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    A, B = session.put(a), session.put(b)
    np.testing.assert_array_equal(session.get(session.submit(MatmulBgrad(a=A, b=B, epilogue="bgrad_a"))[1]), a.sum(1))
    np.testing.assert_array_equal(session.get(session.submit(MatmulBgrad(a=A, b=B, epilogue="bgrad_b"))[1]), b.sum(0))
