"""What is counted as executed: ops and the dtype of their first operand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import Repeated, info_of
from callboard.core.operand import Placeholder
from callboard.device.client.line.port import OpPort
from callboard.kernel.blas import Gemm
from callboard.kernel.memory import Empty
from callboard.kernel.sparse import CsrRef, SpMv
from callboard.kernel.sparse_lt import Matmul
from callboard.kernel.sparse_lt.structured import StructuredRef, compressed_bytes
from callboard.kernel.tensor import Einsum
from gpu_check import pytest_report
from gpu_check.pytest_report import first_dtype


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def csr(dtype: str) -> Any:
    return CsrRef(array(dtype, 3), array("i32", 3), array("i32", 5), shape=(4, 4))


def structured() -> Any:
    room = compressed_bytes(DTYPES["bf16"], (32, 32))
    return StructuredRef(array("u8", room), "bf16", (32, 32))


@pytest.mark.parametrize(
    "message, dtype",
    [
        (Gemm(a=array("f32", 2, 2), b=array("f32", 2, 2)), "f32"),
        (Einsum(equation="ij->ji", operands=(array("c64", 2, 2),)), "c64"),
        (SpMv(a=csr("f64"), x=array("f64", 4)), "f64"),
        (Matmul(a=structured(), b=array("bf16", 32, 32)), "bf16"),
        (Empty(shape=(3,), dtype="i8"), None),
    ],
)
def test_a_message_tells_the_dtype_that_it_is_counted_by(message: Any, dtype: str | None) -> None:
    assert first_dtype(message) == dtype


@pytest.mark.parametrize("repeated", [False, True])
def test_ops_of_devices_are_counted(monkeypatch: pytest.MonkeyPatch, repeated: bool) -> None:
    """Also one of which the op line gets the parts, and a function that makes the message."""
    given: list[Any] = []

    def submit(self: Any, op: Any, extra: Any = None, keep: Any = None, depth: int = 2, into: Any = None) -> str:
        given.append((op, depth))
        return "reply"

    monkeypatch.setattr(OpPort, "submit", submit)
    monkeypatch.setattr(pytest_report, "EXECUTED", executed := set[str]())
    pytest_report.listen_to_devices()
    message = Gemm(a=array("f32", 2, 2), b=array("f32", 2, 2))
    op: Any = Repeated(b"", [message.a, message.b], [], lambda: message) if repeated else message
    for name, counted in (("cpu:0", set()), ("cuda:0", {"blas.gemm", "blas.gemm of f32"})):
        port: Any = SimpleNamespace(name=name)
        assert OpPort.submit(port, op, depth=5) == "reply"
        assert executed == counted
    assert given == [(op, 6)] * 2


def test_an_expression_that_is_called_again_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, ops = OpPort.submit, list[Any]()

    def seen(self: Any, op: Any, *args: Any, depth: int = 2, **named: Any) -> Any:
        ops.append(op)
        return submit(self, op, *args, depth=depth + 1, **named)

    monkeypatch.setattr(OpPort, "submit", seen)
    with cb.sync.device("cpu", isolation="thread", standby=None) as device:
        x = device.put(np.ones(3, np.float32))
        for _ in range(2):
            np.testing.assert_array_equal((x + x).get(), 2)
    assert any(isinstance(op, Repeated) for op in ops)
    told = {(info_of(type(op)).tag, first_dtype(op)) for op in map(pytest_report.message_of, ops)}
    assert ("elementwise.map", "f32") in told
