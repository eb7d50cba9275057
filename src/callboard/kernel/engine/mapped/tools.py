"""What the functions of operators use: arrays of the host or the device, and the libraries of the device."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import UnsupportedOp
from callboard.core.operand import Operand
from callboard.kernel.dnn.api import DnnApi
from callboard.kernel.elementwise.api import ElementwiseApi
from callboard.kernel.engine.onnxfile import ELEMENTS

__all__ = ["OPERATORS", "HostOnly", "Operator", "Tools", "operator"]

Value = Any
"""A NumPy array while it is known on the host (shapes, constants), else a ref."""


class HostOnly(Exception):
    """Raised while constants are computed on the host: this operator needs the device."""


class Operator:
    """A function ``(tools, *inputs, **attributes)`` for one operator; its keywords are the attributes that it knows."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.attributes = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
        self.required = {
            each.name
            for each in parameters
            if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is inspect.Parameter.empty
        }
        positional = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self.variadic = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
        self.most = len(positional)
        self.least = sum(each.default is inspect.Parameter.empty for each in positional)


OPERATORS: dict[str, Operator] = {}
"""The table of operators by their names in ONNX's own domain."""


def operator(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for these operators."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATORS.update(dict.fromkeys(names, Operator(function)))
        return function

    return register


class Tools:
    """The libraries of a device, for one execution.

    Args:
        submit: Submits messages; None while constants are computed on the host.
        put: Copies a host array to the device.
        opset: Version of the operators.
    """

    def __init__(self, submit: Any, put: Callable[[Any], Any] | None, opset: int) -> None:
        self.opset = opset
        self.outputs = 1
        self.title = ""
        self._submit = submit
        self._put = put
        self._constants: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        if submit is not None:
            assert put is not None
            self._dnn: Any = DnnApi(submit, put)
            self._elementwise: Any = ElementwiseApi(submit, put)

    @property
    def dnn(self) -> Any:
        """``dev.dnn``."""
        if self._submit is None:
            raise HostOnly
        return self._dnn

    def ref(self, value: Value) -> Any:
        """The value on the device."""
        if isinstance(value, Operand):
            return value
        if self._put is None:
            raise HostOnly
        found = self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = (self._put(np.ascontiguousarray(value).reshape(value.shape)), value)
        return found[0]

    def remembered(self, constants: dict[int, Any]) -> None:
        """Use these refs of constants, by the identity of their host arrays."""
        self._constants = constants

    def both(self, *values: Value) -> tuple[Any, tuple[Any, ...]]:
        """The namespace of arrays, and the values in it: NumPy if all are on the host, else the device's."""
        if all(not isinstance(value, Operand) for value in values):
            return np, values
        refs = tuple(map(self.ref, values))
        return refs[0]._port.services.xp, refs

    def xp(self, value: Value) -> Any:
        """The namespace of one value."""
        return self.ref(value)._port.services.xp if isinstance(value, Operand) else np

    def map(self, expression: str, **values: Value) -> Any:
        """``dev.elementwise.map`` of arrays and numbers."""
        if self._submit is None:
            raise HostOnly
        named = {
            name: self.ref(value) if isinstance(value, np.ndarray | np.generic | Operand) else value
            for name, value in values.items()
        }
        return self._elementwise.map(expression, **named)

    def host(self, value: Value, what: str) -> "np.ndarray[Any, Any]":
        """A value that shapes depend on, and that therefore must be known before the execution.

        Raises:
            UnsupportedOp: It is computed on the device.
        """
        if isinstance(value, Operand):
            raise self.refusal(f"{what} is computed on the device, and must be known on the host: pass NumPy arrays")
        return np.asarray(value)

    def ints(self, value: Value, what: str) -> list[int]:
        """A list of integers on the host."""
        return [int(each) for each in self.host(value, what).ravel()]

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another dtype."""
        to = DTYPES[dtype]
        if isinstance(value, Operand):
            return value if value.dtype is to else self.xp(value).astype(value, to)
        return value.astype(to.np)

    def element(self, code: int) -> str:
        """The dtype of ONNX's code.

        Raises:
            UnsupportedOp: The ops have none.
        """
        dtype = ELEMENTS.get(code, "")
        if not dtype or dtype.startswith(("f8", "c")):
            raise self.refusal(f"the element type {dtype or code} is not mapped")
        return dtype

    def refusal(self, why: str) -> UnsupportedOp:
        """The error of an operator that cannot be mapped."""
        return UnsupportedOp(f"{self.title}: {why}")


def is_float(value: Value) -> bool:
    """True for a floating-point dtype."""
    return kind_of(value) == "f"


def kind_of(value: Value) -> str:
    """``"f"``, ``"i"``, ``"u"`` or ``"b"``."""
    if isinstance(value, Operand):
        return "f" if value.dtype.is_float else {"b": "b", "u": "u"}.get(value.dtype.name[0], "i")
    return "f" if value.dtype.kind in "fV" else value.dtype.kind


def name_of(value: Value) -> str:
    """Name of the dtype."""
    from callboard.core.dtype import as_dtype

    return value.dtype.name if isinstance(value, Operand) else as_dtype(value.dtype).name
