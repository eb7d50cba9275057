"""All of BLAS: every message runs, and what does not fit is refused by name before anything happens."""

import re
from typing import Any

import numpy as np
import pytest
from blas_lab import execute

import callboard.kernel.blas as blas
from callboard.core.errors import ShapeError
from callboard.core.op import OPS, Op
from callboard.core.operand import Operand
from callboard.kernel.blas import (
    Axpy,
    Copy,
    Dot,
    Dotc,
    Geam,
    Gemm,
    GemmBatched,
    GemmGrouped,
    GemmStridedBatched,
    Gemv,
    Ger,
    Geru,
    Hemm,
    Herk,
    Iamax,
    Iamin,
    Nrm2,
    Rot,
    Scal,
    Swap,
    Symm,
    Syrk,
    Trmm,
    Trsm,
)


class Arrays:
    """Operands of the tables below, named ``<dtype>_<shape>``, made on first use."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        dtype, *shape = name.split("_")
        ref = self._session.put(np.ones(tuple(map(int, shape))), dtype)
        setattr(self, name, ref)
        return ref


LOWER = np.tri(3)
MESSAGES: dict[str, tuple[Any, Any]] = {
    "asum": (lambda x: blas.Asum(x=x.f32_4), 4),
    "axpy": (lambda x: Axpy(x=x.f32_4, y=x.f32_4), 2),
    "copy": (lambda x: Copy(x=x.f32_4), 1),
    "dot": (lambda x: Dot(x=x.f32_4, y=x.f32_4), 4),
    "dotc": (lambda x: Dotc(x=x.c64_4, y=x.c64_4), 4),
    "dotu": (lambda x: blas.Dotu(x=x.c64_4, y=x.c64_4), 4),
    "geam": (lambda x: Geam(a=x.f32_3_4, b=x.f32_3_4), 2),
    "gemm": (lambda x: Gemm(a=x.f32_3_4, b=x.f32_4_4), 4),
    "gemm_batched": (lambda x: GemmBatched(a=(x.f32_3_4,), b=(x.f32_4_4,)), 4),
    "gemm_grouped": (lambda x: GemmGrouped(a=(x.f32_3_3,), b=(x.f32_3_4,), c=(x.f32_4_3.reshape(3, 4),)), 3),
    "gemm_strided_batched": (lambda x: GemmStridedBatched(a=x.f32_2_3_4, b=x.f32_2_4_3), 4),
    "gbmv": (lambda x: blas.Gbmv(a=x.f32_3_2.T, x=x.f32_3, below=1), [1, 2, 2]),
    "gemv": (lambda x: Gemv(a=x.f32_3_4, x=x.f32_4), 4),
    "ger": (lambda x: Ger(x=x.f32_3, y=x.f32_4, a=x.f32_3_4), 2),
    "gerc": (lambda x: blas.Gerc(x=x.c64_3, y=x.c64_4, a=x.c64_3_4), 2),
    "geru": (lambda x: Geru(x=x.c64_3, y=x.c64_4, a=x.c64_3_4), 2),
    "hbmv": (lambda x: blas.Hbmv(a=x.c64_3_2.T, x=x.c64_3), [2, 3, 2]),
    "hemm": (lambda x: Hemm(a=x.c64_3_3, b=x.c64_3_4), 3),
    "hemv": (lambda x: blas.Hemv(a=x.c64_3_3, x=x.c64_3), 3),
    "her": (lambda x: blas.Her(x=x.c64_3, a=x.c64_3_3), 1 + LOWER),
    "her2": (lambda x: blas.Her2(x=x.c64_3, y=x.c64_3, a=x.c64_3_3), 1 + 2 * LOWER),
    "her2k": (lambda x: blas.Her2k(a=x.c64_3_4, b=x.c64_3_4, c=x.c64_3_3), 1 + 7 * LOWER),
    "hpmv": (lambda x: blas.Hpmv(a=x.c64_6, x=x.c64_3), 3),
    "hpr": (lambda x: blas.Hpr(x=x.c64_3, a=x.c64_6), 2),
    "hpr2": (lambda x: blas.Hpr2(x=x.c64_3, y=x.c64_3, a=x.c64_6), 3),
    "herk": (lambda x: Herk(a=x.c64_3_4, c=x.c64_3_3), 1 + 3 * LOWER),
    "iamax": (lambda x: Iamax(x=x.f32_4), 0),
    "iamin": (lambda x: Iamin(x=x.f32_4), 0),
    "nrm2": (lambda x: Nrm2(x=x.f32_4), 2),
    "rot": (lambda x: Rot(x=x.f32_4, y=x.f32_2_2.reshape(4), c=1, s=0), 1),
    "sbmv": (lambda x: blas.Sbmv(a=x.f32_3_2.T, x=x.f32_3), [2, 3, 2]),
    "scal": (lambda x: Scal(x=x.f32_4, alpha=2), 2),
    "spmv": (lambda x: blas.Spmv(a=x.f32_6, x=x.f32_3), 3),
    "spr": (lambda x: blas.Spr(x=x.f32_3, a=x.f32_6), 2),
    "spr2": (lambda x: blas.Spr2(x=x.f32_3, y=x.f32_3, a=x.f32_6), 3),
    "swap": (lambda x: Swap(x=x.f32_4, y=x.f32_2_2.reshape(4)), 1),
    "symm": (lambda x: Symm(a=x.f32_3_3, b=x.f32_3_4), 3),
    "symv": (lambda x: blas.Symv(a=x.f32_3_3, x=x.f32_3), 3),
    "syr": (lambda x: blas.Syr(x=x.f32_3, a=x.f32_3_3), 1 + LOWER),
    "syr2": (lambda x: blas.Syr2(x=x.f32_3, y=x.f32_3, a=x.f32_3_3), 1 + 2 * LOWER),
    "syr2k": (lambda x: blas.Syr2k(a=x.f32_3_4, b=x.f32_3_4, c=x.f32_3_3), 1 + 7 * LOWER),
    "syrk": (lambda x: Syrk(a=x.f32_3_4, c=x.f32_3_3), 1 + 3 * LOWER),
    "tbmv": (lambda x: blas.Tbmv(a=x.f32_3_2.T, x=x.f32_3), [1, 2, 2]),
    "tbsv": (lambda x: blas.Tbsv(a=x.f32_3_2.T, x=x.f32_3), [1, 0, 1]),
    "tpmv": (lambda x: blas.Tpmv(a=x.f32_6, x=x.f32_3), [1, 2, 3]),
    "tpsv": (lambda x: blas.Tpsv(a=x.f32_6, x=x.f32_3), [1, 0, 0]),
    "trmm": (lambda x: Trmm(a=x.f32_3_3, b=x.f32_3_4), [[1], [2], [3]]),
    "trmv": (lambda x: blas.Trmv(a=x.f32_3_3, x=x.f32_3), [1, 2, 3]),
    "trsm": (lambda x: Trsm(a=x.f32_3_3, b=x.f32_3_4), [[1], [0], [0]]),
    "trsv": (lambda x: blas.Trsv(a=x.f32_3_3, x=x.f32_3), [1, 0, 0]),
}
"""Each message on ones, and what that comes to, or each of its rows or elements."""


def test_the_table_has_every_message() -> None:
    assert {f"blas.{name}" for name in MESSAGES} == {tag for tag in OPS if tag.startswith("blas.")}


@pytest.mark.parametrize("make, wanted", MESSAGES.values(), ids=MESSAGES.keys())
def test_every_message_runs(session: Any, make: Any, wanted: Any) -> None:
    op: Op[Any, Any] = make(Arrays(session))
    result = execute(session, op)
    for part in result if isinstance(result, tuple) else (result,):
        got = np.asarray(session.get(part) if isinstance(part, Operand) else part)
        np.testing.assert_allclose(got, np.broadcast_to(wanted, got.shape), rtol=1e-6)


# what is wrong; what the error must say: the op, the operand, the value, the cure
REFUSED: dict[str, tuple[Any, str]] = {
    "inner extents": (
        lambda x: Gemm(a=x.f32_3_4, b=x.f32_3_4),
        (
            "blas.gemm: a is f32[3, 4] and b is f32[3, 4]: op(a) is [3, 4] and op(b) [3, 4]; "
            "their inner extents must be equal (see transpose_a, transpose_b)"
        ),
    ),
    "dtype": (lambda x: Gemm(a=x.i32_3_3, b=x.i32_3_3), "a is i32[3, 3]; its dtype must be one of f16, bf16, f32"),
    "dtypes": (lambda x: Gemm(a=x.f32_3_4, b=x.f64_4_3), "b is f64[4, 3] and a is f32[3, 4]: both must have one dtype"),
    "axes": (lambda x: Gemm(a=x.f32_3, b=x.f32_3_3), "a is f32[3]; it must have 2 axes"),
    "too many axes": (lambda x: Gemm(a=x.f32_2_3_4, b=x.f32_4_4), "a is f32[2, 3, 4]; it must have 2 axes"),
    "steps on both axes": (
        lambda x: Gemm(a=x.f32_4_4[::2, ::2], b=x.f32_2_3),
        (
            "a is f32[2, 2], strides (8, 2): BLAS needs rows or columns without gaps, and steps of whole rows; "
            "copy it first (dev.copy)"
        ),
    ),
    "rows backwards": (lambda x: Gemm(a=x.f32_4_4[::-1], b=x.f32_4_4), "a is f32[4, 4], strides (-4, 1): BLAS needs"),
    "columns backwards": (lambda x: Gemm(a=x.f32_4_4, b=x.f32_4_4[:, ::-1]), "b is f32[4, 4], strides (4, -1): BLAS"),
    "c of another shape": (
        lambda x: Gemm(a=x.f32_3_4, b=x.f32_4_4, c=x.f32_4_4, beta=1),
        "c is f32[4, 4], expected f32[3, 4]",
    ),
    "c of another dtype": (
        lambda x: Gemm(a=x.i8_4_4, b=x.i8_4_4, c=x.i8_4_4, beta=1),
        "c is i8[4, 4], expected i32[4, 4]",
    ),
    "c with gaps": (lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_2, c=x.f32_3_4[:, ::2], beta=1), "c is f32[3, 2], strides"),
    "out of another shape": (
        lambda x: Gemm(a=x.f32_3_4, b=x.f32_4_4, out=x.f32_4_4),
        "out is f32[4, 4], expected f32[3, 4]",
    ),
    "out of another dtype": (
        lambda x: Gemm(a=x.f32_3_4, b=x.f32_4_4, out=x.f64_3_4),
        "out is f64[3, 4], expected f32[3, 4]",
    ),
    "out with gaps": (lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_2, out=x.f32_3_4[:, ::2]), "out is f32[3, 2], strides"),
    "beta without c": (lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_3, beta=1), "beta is 1.0 and c is None; pass the c that"),
    "0-d beta without c": (lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_3, beta=x.f32), "and c is None; pass the c that"),
    "complex alpha": (
        lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_3, alpha=1j),
        "alpha is complex and the arrays are f32; pass a real number",
    ),
    "alpha with axes": (lambda x: Gemm(a=x.f32_3_3, b=x.f32_3_3, alpha=x.f32_3), "alpha is f32[3]; pass a number or"),
    "alpha of another dtype": (
        lambda x: Gemm(a=x.f16_3_3, b=x.f16_3_3, alpha=x.f16),
        "alpha is f16[]; with arrays of f16 a 0-d array must be f32",
    ),
    "broken alpha for i8": (
        lambda x: Gemm(a=x.i8_4_4, b=x.i8_4_4, alpha=0.5),
        "alpha is 0.5; with i8 arrays it must be an integer of 32 bits",
    ),
    "large beta for i8": (
        lambda x: Gemm(a=x.i8_4_4, b=x.i8_4_4, c=x.i32_4_4, beta=2.0**31),
        "beta is 2147483648.0; with i8 arrays",
    ),
    "tf32 for f64": (lambda x: Gemm(a=x.f64_3_3, b=x.f64_3_3, tf32=True), "tf32 is True and the arrays are f64; leave"),
    "conj of what is not transposed": (
        lambda x: Gemm(a=x.c64_3_3, b=x.c64_3_3, conj_a=True),
        (
            "conj of a without a transposition in memory is not a BLAS operation; "
            "pass dev.copy(a.T) and the other value of its transpose flag"
        ),
    ),
    "stack with 2 axes": (
        lambda x: GemmStridedBatched(a=x.f32_3_4, b=x.f32_2_4_3),
        "a is f32[3, 4]; it must have 3 axes (one matrix for all: a[None])",
    ),
    "stacks of different lengths": (
        lambda x: GemmStridedBatched(a=x.f32_2_3_4, b=x.f32_3_4_3),
        "2 and 3 matrices; the first extents must be equal, or one of them 1",
    ),
    "stack backwards": (
        lambda x: GemmStridedBatched(a=x.f32_2_3_4[::-1], b=x.f32_2_4_3),
        "a is f32[2, 3, 4], strides (-12, 4, 1): its matrices run backwards; copy it first",
    ),
    "stack inner extents": (lambda x: GemmStridedBatched(a=x.f32_2_3_4, b=x.f32_2_3_4), "op(a) is [3, 4] and op(b) is"),
    "no matrices": (lambda x: GemmBatched(a=(), b=()), "a is empty; pass at least one matrix"),
    "fewer matrices": (
        lambda x: GemmBatched(a=(x.f32_3_3,) * 2, b=(x.f32_3_3,)),
        "a holds 2 matrices and b 1; pass as",
    ),
    "matrices of two shapes": (
        lambda x: GemmBatched(a=(x.f32_3_3, x.f32_4_3), b=(x.f32_3_3,) * 2),
        "a[1] is f32[4, 3] and a[0] f32[3, 3]; all must have one layout (gemm_grouped takes different ones)",
    ),
    "group of two dtypes": (
        lambda x: GemmGrouped(a=(x.f32_3_3, x.f64_3_3), b=(x.f32_3_3, x.f64_3_3), c=(x.f32_3_3, x.f64_3_3)),
        "a[1] is f64[3, 3] and a[0] is f32[3, 3]",
    ),
    "c of a group": (
        lambda x: GemmGrouped(a=(x.f32_3_3,), b=(x.f32_3_4,), c=(x.f32_3_3,)),
        "c[0] is f32[3, 3], expected f32[3, 4]",
    ),
    "sum of two shapes": (
        lambda x: Geam(a=x.f32_3_4, b=x.f32_4_3),
        "op(a) is [3, 4] and op(b) [4, 3]; their shapes must be equal",
    ),
    "half sum": (
        lambda x: Geam(a=x.f16_3_4, b=x.f16_3_4),
        "a is f16[3, 4]; its dtype must be one of f32, f64, c64, c1",
    ),
    "a of spr": (lambda x: blas.Spr(x=x.f32_3, a=x.f32_3), "a is f32[3]; packed for x of 3 elements it must be [6]"),
    "a of spr with gaps": (lambda x: blas.Spr(x=x.f32_3, a=x.f32_12[::2]), "it must be [6], no gaps"),
    "a of syr": (lambda x: blas.Syr(x=x.f32_3, a=x.f32_4_4), "a is f32[4, 4]; it must be [3, 3]"),
    "c of syrk": (lambda x: Syrk(a=x.f32_3_4, c=x.f32_4_4), "c is f32[4, 4]; it must be [3, 3]"),
    "herk of real": (lambda x: Herk(a=x.f32_3_4, c=x.f32_3_3), "a is f32[3, 4]; its dtype must be one of c64, c128"),
    "complex alpha of herk": (
        lambda x: Herk(a=x.c64_3_4, c=x.c64_3_3, alpha=1j),
        "alpha is complex and the arrays are f32; pass a real number",
    ),
    "symm not square": (lambda x: Symm(a=x.f32_3_4, b=x.f32_3_4), "a is f32[3, 4]; it must be [3, 3]"),
    "symm on the right": (lambda x: Symm(a=x.f32_3_3, b=x.f32_3_4, left=False), "a is f32[3, 3]; it must be [4, 4]"),
    "trsm order": (lambda x: Trsm(a=x.f32_3_3, b=x.f32_4_3), "a is f32[3, 3]; it must be [4, 4]"),
    "trmm strides": (lambda x: Trmm(a=x.f32_3_3, b=x.f32_3_4[:, ::2]), "b is f32[3, 2], strides (4, 2): BLAS needs"),
    "x of gemv": (lambda x: Gemv(a=x.f32_3_4, x=x.f32_3), "x is f32[3] and op(a) is [3, 4]; x must have 4 elements"),
    "matrix for x": (lambda x: Gemv(a=x.f32_3_4, x=x.f32_4_1), "x is f32[4, 1]; it must have 1 axis"),
    "beta without y": (lambda x: Gemv(a=x.f32_3_4, x=x.f32_4, beta=1), "beta is 1.0 and y is None; pass the y that"),
    "y of gemv": (lambda x: Gemv(a=x.f32_3_4, x=x.f32_4, y=x.f32_4, beta=1), "y is f32[4], expected f32[3]"),
    "a of ger": (lambda x: Ger(x=x.f32_3, y=x.f32_4, a=x.f32_4_3), "with x of 3 and y of 4 elements it must be [3, 4]"),
    "ger of complex": (lambda x: Ger(x=x.c64_3, y=x.c64_4, a=x.c64_3_4), "its dtype must be one of f32, f64"),
    "geru of real": (lambda x: Geru(x=x.f32_3, y=x.f32_4, a=x.f32_3_4), "its dtype must be one of c64, c128"),
    "y of another shape": (
        lambda x: Axpy(x=x.f32_4, y=x.f32_3),
        "y is f32[3] and x is f32[4]; pass arrays of one shape",
    ),
    "dot of complex": (
        lambda x: Dot(x=x.c64_4, y=x.c64_4),
        "x is c64[4]; its dtype must be one of f16, bf16, f32, f64",
    ),
    "dotc of real": (lambda x: Dotc(x=x.f32_4, y=x.f32_4), "x is f32[4]; its dtype must be one of c64, c128"),
    "uneven steps": (
        lambda x: Nrm2(x=x.f32_3_4[:, :2]),
        "x is f32[3, 2], strides (4, 1): BLAS needs evenly spaced, distinct elements; copy it first",
    ),
    "out of a reduction": (lambda x: Nrm2(x=x.c64_4, out=x.c64), "out is c64[], expected f32[]"),
    "out of a position": (lambda x: Iamax(x=x.f32_4, out=x.i32), "out is i32[], expected i64[]"),
    "position in nothing": (lambda x: Iamax(x=x.f32_0), "x is f32[0], which has no element"),
    "position backwards": (lambda x: Iamin(x=x.f32_4[::-1]), "x is f32[4], strides (-1,): it runs backwards; copy it"),
    "scal of integers": (lambda x: Scal(x=x.i32_4, alpha=2), "x is i32[4]; its dtype must be one of f16"),
    "complex scal of real": (lambda x: Scal(x=x.f32_4, alpha=2j), "alpha is complex and the arrays are f32"),
    "complex cosine": (lambda x: Rot(x=x.c64_4, y=x.c64_4, c=1j, s=0), "c is complex and the arrays are f32"),
    "sine of another dtype": (
        lambda x: Rot(x=x.c64_4, y=x.c64_4, c=x.f32, s=x.f32),
        "s is f32[]; with arrays of c64 a 0-d array must be c64",
    ),
    "swap of two dtypes": (
        lambda x: Swap(x=x.f32_4, y=x.f64_4),
        "y is f64[4] and x is f32[4]: both must have one dtype",
    ),
    "copy to another shape": (lambda x: Copy(x=x.f32_4, out=x.f32_3), "out is f32[3], expected f32[4]"),
}


@pytest.mark.parametrize("make, says", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(says)) as caught:
        session.submit(make(Arrays(session)))
    assert str(caught.value).startswith("blas.")


def test_x_that_repeats_an_element_is_refused(session: Any) -> None:
    one = session.put(np.ones((1, 4), "f4"))
    for repeated in (one[:, 0:1], one[None, :, 0:1]):
        assert execute(session, Nrm2(x=repeated)) == 1  # one element repeats nothing
    with pytest.raises(ShapeError, match="runs backwards"):
        session.submit(Iamax(x=one[0, ::-1]))
