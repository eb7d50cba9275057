"""Methods that are built when they are first looked up are as good as written ones: for help, completion and errors."""

import inspect
import pickle
import pydoc
import traceback
from typing import Any

import numpy as np
import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import Op
from callboard.core.operand import Placeholder
from callboard.core.ref import GpuRef
from callboard.device.client.line.entries import origin_of
from callboard.kernel.blas import Gemm
from callboard.kernel.blas.api import BlasApi
from callboard.kernel.methods import library_api, parameters_of

A: Any = Placeholder(layout_of(DTYPES["f32"], (2, 2)))


@pytest.fixture
def fresh() -> Any:
    """A class of methods that none has looked up."""
    return library_api("callboard.kernel.blas.api", "level3")


def test_a_method_is_a_function_of_its_class() -> None:
    gemm = BlasApi.gemm
    assert inspect.isfunction(gemm)
    assert (gemm.__module__, gemm.__qualname__, gemm.__name__) == ("callboard.kernel.blas.api", "BlasApi.gemm", "gemm")
    assert BlasApi.gemm is gemm
    assert pickle.loads(pickle.dumps(gemm)) is gemm
    with pytest.raises(TypeError, match="a BlasApi is a handle inside one process and cannot be pickled"):
        pickle.dumps(BlasApi(list, np.asarray).gemm)


def test_a_method_is_compiled_when_it_is_first_looked_up(fresh: Any) -> None:
    assert not inspect.isfunction(vars(fresh)["gemm"])
    first = fresh.gemm
    assert vars(fresh)["gemm"] is first
    assert not inspect.isfunction(vars(fresh)["symm"])


def test_completion_sees_functions(fresh: Any) -> None:
    """It reads the dictionary of the class for the names that ``dir`` gives."""
    names = dir(fresh(list, np.asarray))
    assert {"gemm", "trsm", "_submit"} <= set(names)
    assert all(inspect.isfunction(inspect.getattr_static(fresh, name)) for name in ("gemm", "trsm"))


def test_help_has_signature_description_and_errors(fresh: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(fresh))
    assert "class BlasApi in module callboard.kernel.blas.api" in text
    assert "BLAS operations of ``dev.blas``." in text
    assert "MailboxFull: At the call" in text
    text = pydoc.plain(pydoc.render_doc(BlasApi(list, np.asarray).gemm))
    assert "gemm(a: callboard.core.ref.handle.GpuRef[~Mode], b: " in text
    assert "``out = alpha * op(a) @ op(b) + beta * c``, row-major like NumPy." in text
    for field in Gemm.__struct_fields__:
        assert f"{field}: " in text


def test_a_subclass_can_extend_a_method(fresh: Any) -> None:
    class Own(fresh):  # type: ignore[misc]
        __slots__ = ()

        def gemm(self, *operands: Any) -> Any:
            calls.append(operands)
            return super().gemm(*operands)

    calls: list[Any] = []
    assert Own(lambda op: op, np.asarray).gemm(A, A) == Gemm(a=A, b=A)
    assert len(calls) == 1


def test_an_error_names_the_method_and_shows_its_line() -> None:
    blas: Any = BlasApi(lambda op: op, np.asarray)
    with pytest.raises(TypeError, match=r"^BlasApi.gemm\(\) missing 1 required positional argument: 'b'$"):
        blas.gemm(A)
    with pytest.raises(TypeError, match=r"^BlasApi.gemm\(\) got an unexpected keyword argument 'lda'$"):
        blas.gemm(A, A, lda=2)
    with pytest.raises(TypeError, match=r"^blas.gemm: b is int; pass a GpuRef") as caught:
        blas.gemm(A, 1)
    lines = traceback.format_exception(caught.value)
    assert any("return self._submit(Gemm(a=a, b=b, out=out" in line for line in lines)
    assert inspect.getsource(BlasApi.gemm).startswith("def gemm(self, a, b, *, out=...")


def test_the_line_that_called_is_the_application_s() -> None:
    """Of a plug-in's methods, too: whatever their module is called, they are not the caller."""
    blas: Any = BlasApi(lambda op: origin_of(2), np.asarray)
    _, code, _ = blas.gemm(A, A)
    assert code.co_name == "test_the_line_that_called_is_the_application_s"
    assert BlasApi.gemm.__module__ != BlasApi.gemm.__globals__["__name__"]


def test_modules_without_messages_are_an_import_error() -> None:
    with pytest.raises(ImportError, match=r"blas.strides: no message .*; run: callboard api callboard.ker"):
        library_api("callboard.kernel.blas.api", "strides")


def test_a_default_that_is_made_for_each_message_is_a_value() -> None:
    class Sized(Op[Any, GpuRef]):
        sizes: dict[str, int] = {}  # noqa: RUF012

    (sizes,) = parameters_of(Sized)
    assert (sizes.name, sizes.default) == ("sizes", {})
