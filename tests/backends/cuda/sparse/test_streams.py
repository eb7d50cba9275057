"""Every launch of ``CudaSparse`` enqueues on the stream it is given, with a stand-in that computes nothing.

What the launches compute is shown on GPUs only; so these cases are no proof that an op runs.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_idle import IdleCusparse

from callboard.backends.cuda.sparse import cusparse
from callboard.backends.cuda.sparse.library import CudaSparse
from callboard.kernel import sparse

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from sparse_lab import drawn, put, put_blocks

N = 8
ENTRIES = ("csr", "csc", "coo")
BLOCKS = ("bsr", "blocked_ell")
Case = tuple[str, Callable[[HostSession], Any]]


@pytest.fixture
def session(idle_session: HostSession, monkeypatch: pytest.MonkeyPatch) -> HostSession:
    stand_in = IdleCusparse(idle_session.driver)
    monkeypatch.setattr(cusparse, "load_cusparse", lambda: stand_in)
    return idle_session


def matrix(session: HostSession, form: str = "csr", index: str = "i32", dtype: str = "f32", seed: int = 1) -> Any:
    dense = drawn(seed, (N, N), dtype, 0.5)
    if form in BLOCKS:
        return put_blocks(session, dense, form, (2, 2), index, spare=int(form == "blocked_ell"))
    return put(session, dense, form, index)


def array(session: HostSession, *shape: int, dtype: str = "f32") -> Any:
    return session.put(np.ones(shape), dtype)


def block_of(form: str) -> "tuple[int, int] | None":
    return (2, 2) if form in BLOCKS else None


def products() -> Iterator[Case]:
    for form in (*ENTRIES, *BLOCKS):
        for numbers in (True, False):

            def product(session: HostSession, form: str = form, numbers: bool = numbers) -> Any:
                alpha = 2.0 if numbers else array(session)
                c = array(session, N, 3)
                b = array(session, N, 3)
                return sparse.SpMm(a=matrix(session, form), b=b, out=array(session, N, 3), c=c, alpha=alpha, beta=0.5)

            yield f"sp_mm {form} {'numbers' if numbers else 'arrays'}", product
    yield "sp_mv", lambda s: sparse.SpMv(a=matrix(s), x=array(s, N))
    yield "sp_mv without entries", lambda s: sparse.SpMv(a=put(s, np.zeros((N, N), "f4")), x=array(s, N))
    yield "sp_gemm", lambda s: sparse.SpGemm(a=matrix(s), b=matrix(s, seed=2))
    yield "sddmm", lambda s: sparse.Sddmm(a=array(s, N, 4), b=array(s, 4, N), c=matrix(s), alpha=array(s), beta=0.5)
    for form, dtype in (("csr", "bf16"), ("bsr", "f32")):

        def sampled(session: HostSession, form: str = form, dtype: str = dtype) -> Any:
            a, b = array(session, N, 3, dtype=dtype), array(session, 3, N, dtype=dtype)
            return sparse.Sddmm(a=a, b=b, c=matrix(session, form, dtype=dtype))

        yield f"sddmm {form} {dtype}", sampled
    for form in ENTRIES:
        yield f"sp_sv {form}", lambda s, form=form: sparse.SpSv(a=matrix(s, form), x=array(s, N), alpha=array(s))
        yield f"sp_sm {form}", lambda s, form=form: sparse.SpSm(a=matrix(s, form), b=array(s, N, 2))


def conversions() -> Iterator[Case]:
    forms = (*ENTRIES, *BLOCKS)
    for form in forms:
        yield f"to_dense {form}", lambda s, form=form: sparse.ToDense(a=matrix(s, form))
        yield f"check {form}", lambda s, form=form: sparse.Check(a=matrix(s, form))

        def from_dense(session: HostSession, form: str = form) -> Any:
            return sparse.FromDense(dense=array(session, N, N), format=form, block=block_of(form))  # type: ignore[arg-type]

        def into(session: HostSession, form: str = form) -> Any:
            op, out, count = from_dense(session, form), matrix(session, form), array(session, dtype="i64")
            return sparse.FromDense(dense=op.dense, format=op.format, block=op.block, out=out, count=count)

        yield f"from_dense {form}", from_dense
        yield f"from_dense {form} into", into
        for target in forms:
            for index in ("i32", "i64"):

                def convert(session: HostSession, form: str = form, target: str = target, index: str = index) -> Any:
                    block = block_of(target)
                    return sparse.Convert(a=matrix(session, form, index), format=target, block=block)  # type: ignore[arg-type]

                if form != target:
                    yield f"convert {form} {target} {index}", convert
    yield "transpose", lambda s: sparse.Transpose(a=matrix(s, "bsr"))
    for form in ENTRIES:
        for duplicates in ("keep", "sum", "refuse"):
            for index in ("i32", "i64"):

                def sort(session: HostSession, form: str = form, how: Any = duplicates, index: str = index) -> Any:
                    return sparse.Sort(a=matrix(session, form, index), duplicates=how)

                if duplicates != "refuse":  # all are, where 0 places are counted
                    yield f"sort {form} {duplicates} {index}", sort


CASES = dict([*products(), *conversions()])


@pytest.mark.parametrize("case", CASES)
def test_launches_enqueue_where_they_are_told(session: HostSession, case: str) -> None:
    session.launch_only(CASES[case](session))


def test_every_launch_has_a_case(session: HostSession) -> None:
    assert {type(case(session)) for case in CASES.values()} == set(CudaSparse.launch_table)
