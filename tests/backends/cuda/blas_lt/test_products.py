"""Mapping of messages to cuBLASLt's calls, over a stand-in that executes them on host memory."""

from typing import Any

import numpy as np
import pytest
from blas_lab import place_matrix, values
from blas_lt_lab import EPILOGUES, answer
from host_cublaslt import HostCublasLt
from lt_products import product

from callboard.core.dtype import DTYPES
from callboard.core.errors import UnsupportedOp
from callboard.kernel.blas_lt import Matmul


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_in_several_steps_where_there_is_no_fused_kernel(
    session: Any, lt: HostCublasLt, epilogue: str, dtype: str
) -> None:
    lt.unknown = {2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512}
    product(session, epilogue, dtype, factors=(0.5, 2.0), batch=(2,))
    product(session, epilogue, dtype, extents=(5, 11, 0), factors=(0.5, 2.0))


@pytest.mark.parametrize("only_wide", [False, True])
def test_operands_may_start_anywhere(session: Any, lt: HostCublasLt, only_wide: bool) -> None:
    lt.only_wide = only_wide
    if only_wide:  # there is nothing that takes them, not even the plain product
        with pytest.raises(UnsupportedOp, match="starts at an address that is not a multiple of 16 bytes"):
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
