"""Every launch of ``CudaSparseLt`` enqueues on the stream it is given, with a stand-in that computes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_idle import IdleCusparseLt

from callboard.backends.cuda.sparse_lt import cusparselt
from callboard.backends.cuda.sparse_lt.library import CudaSparseLt
from callboard.core.dtype import DTYPES
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Linear, Matmul, Prune, StructuredRef
from callboard.kernel.sparse_lt.structured import compressed_bytes

SIDE = 32


def array(session: HostSession, *shape: int, dtype: str = "f16") -> Any:
    return session.put(np.ones(shape), dtype)


def structured(session: HostSession) -> Any:
    shape = (SIDE, SIDE)
    data = session.empty(compressed_bytes(DTYPES["f16"], shape), "u8")
    return StructuredRef(data=data, dtype="f16", shape=shape)  # type: ignore[arg-type]


CASES: dict[str, Callable[[HostSession], Any]] = {
    "prune": lambda s: Prune(x=array(s, SIDE, SIDE)),
    "check": lambda s: Check(x=array(s, SIDE, SIDE)),
    "compress": lambda s: Compress(x=array(s, SIDE, SIDE)),
    "decompress": lambda s: Decompress(a=structured(s)),
    "matmul": lambda s: Matmul(a=structured(s), b=array(s, SIDE, SIDE)),
    "matmul with more": lambda s: Matmul(
        a=structured(s),
        b=array(s, SIDE, SIDE),
        c=array(s, SIDE, SIDE),
        bias=array(s, SIDE),
        beta=0.5,
        activation="gelu",
    ),
    "matmul of arrays": lambda s: Matmul(a=structured(s), b=array(s, SIDE, SIDE), alpha=array(s, dtype="f32")),
    "linear": lambda s: Linear(x=array(s, SIDE, SIDE), w=structured(s)),
}


@pytest.mark.parametrize("case", CASES)
def test_launches_enqueue_where_they_are_told(
    idle_session: HostSession, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    stand_in = IdleCusparseLt(idle_session.driver)
    monkeypatch.setattr(cusparselt, "load_cusparselt", lambda: stand_in)
    monkeypatch.setattr(cusparselt.CusparseLt, "check_known", lambda *arguments: None)
    idle_session.launch_only(CASES[case](idle_session))


def test_every_launch_has_a_case(idle_session: HostSession) -> None:
    assert {type(case(idle_session)) for case in CASES.values()} == set(CudaSparseLt.launch_table)
