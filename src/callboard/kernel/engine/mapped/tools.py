"""What the functions of operators use: arrays of the host or the device, and the libraries of the device."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.operand import Operand
from callboard.core.ref import DeferredRef
from callboard.kernel.array import Cast
from callboard.kernel.attention.api import AttentionApi
from callboard.kernel.blas_lt.api import BlasLtApi
from callboard.kernel.dnn.api import DnnApi
from callboard.kernel.elementwise.api import ElementwiseApi
from callboard.kernel.elementwise.shapes import broadcast
from callboard.kernel.engine.inputs.refused import InputRefused
from callboard.kernel.engine.onnxfile import ELEMENTS
from callboard.kernel.engine.plan import settled
from callboard.kernel.memory import Copy

__all__ = [
    "OPERATORS",
    "PLUGINS",
    "HostOnly",
    "NotHere",
    "Operator",
    "ResultTooLarge",
    "Tools",
    "operator",
    "operator_of",
]

LARGEST_HERE = 1 << 27
"""Elements of an array that the caller's process makes."""
LARGEST_OPERAND = 1 << 20
"""Elements of an array that the caller's process computes with; one that is larger goes to the device."""
PANELS = (32, 16)
"""Columns of a panel of a matrix: the more, the faster."""
MOST_PRODUCTS = 1_000_000
"""Multiplications of a product with a panel, up to which OpenBLAS takes the matrices as they are."""
LEAST_PANELS = 1 << 14
"""Elements of a matrix in panels: a smaller one stays in the caches."""
MOST_PANELS = 1 << 26
"""Elements of all panels of a plan, which the device has beside the matrices."""
MEMORY = "memory"
"""Key of the allocations of constants, in the table of their refs."""
LARGEST_THERE = 1 << 31
"""Elements of an array that the device makes."""

Value = Any
"""A NumPy array while it is known on the host (shapes, constants), else a ref."""


class HostOnly(Exception):
    """Raised while constants are computed on the host: this operator needs the device."""


class NotHere(HostOnly):
    """As that: it would make more elements than constants may have.

    Attributes:
        elements: How many.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements = elements


class ResultTooLarge(ShapeError):
    """A node would make an array of more elements than are allowed; names the node and the shape."""


class Operator:
    """A function ``(tools, *inputs, **attributes)`` for one operator; its keywords are the attributes that it knows.

    Args:
        function: The function.
        since: The oldest opset in which the operator means what the function computes.
        signature: Of a plugin: its parameters without ``tools``.
    """

    def __init__(self, function: Callable[..., Any], since: int, signature: inspect.Signature | None = None) -> None:
        self.function = function
        self.since = since
        self.is_plugin = signature is not None
        if signature is None:
            parameters = list(inspect.signature(function).parameters.values())[1:]
        else:
            parameters = list(signature.parameters.values())
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


PLUGINS: dict[str, Operator] = {}
"""Operators that programs have registered, by domain and name."""


def operator_of(title: str) -> Operator | None:
    """The operator of a node, or None: those of programs first."""
    return PLUGINS.get(title) or OPERATORS.get(title)


def operator(*names: str, since: int = 13) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for these operators, from an opset on."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATORS.update(dict.fromkeys(names, Operator(function, since)))
        return function

    return register


class Tools:
    """The libraries of a device, for one execution.

    Args:
        submit: Submits messages; None while constants are computed on the host.
        put: Copies a host array to the device.
        opset: Version of the operators.
        largest: Elements of a constant that is computed on the host.
    """

    def __init__(self, submit: Any, put: Callable[..., Any] | None, opset: int, largest: int = LARGEST_HERE) -> None:
        self.opset = opset
        self.outputs = 1
        self.title = ""
        self.rounds = False
        """Factors in f32 may be rounded to TF32."""
        self.turns = 0
        """Turns of loops so far."""
        self.scope: Mapping[str, Any] = {}
        """The values that the present node can read; graphs inside of it read them, too."""
        self._largest = largest
        self._submit = submit
        self._put = put
        self._here: dict[Any, Any] = {}
        self._placed: dict[int, Any] = {}
        """Host arrays that are on the device as they are large, by the identity of their refs."""
        self._made: dict[Any, Any] = {}
        self._constants: dict[Any, Any] = {}
        self._lasting: frozenset[int] = frozenset()
        if submit is not None:
            assert put is not None
            self._dnn: Any = DnnApi(submit, put)
            self._elementwise: Any = ElementwiseApi(submit, put)
            self.blas_lt: Any = BlasLtApi(submit, put)
            self.attention: Any = AttentionApi(submit, put)

    def submit(self, message: Any) -> Any:
        """Submit a message."""
        if self._submit is None:
            raise HostOnly
        return self._submit(message)

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
        lasts = id(value) in self._lasting
        table = self._constants if lasts else self._here
        found = table.get(id(value))
        if found is None:
            array = np.ascontiguousarray(value).reshape(value.shape)
            found = table[id(value)] = (settled(self._put, array) if lasts else self._put(array), value)
            if lasts:
                table.setdefault(MEMORY, set()).add(id(found[0].allocation))
        return found[0]

    def apart(self, results: list[Any], kept: Sequence[Any]) -> list[Any]:
        """The results, each in memory that is no other's, of no constant and of none of these: callers may write it."""
        taken = {id(ref.allocation) for ref in kept} | self._constants.get(MEMORY, set())
        found: list[Any] = []
        for ref in results:
            where = id(ref) if type(ref) is DeferredRef else id(ref.allocation)
            found.append(self.submit(Copy(src=ref)) if where in taken else ref)
            taken.add(where)
        return found

    def placed(self, value: Value) -> Value:
        """The value where a node computes with it: a large one on the device, where no event loop waits for it."""
        if isinstance(value, Operand) or math.prod(value.shape) <= LARGEST_OPERAND:
            return value
        found = self.ref(value)
        self._placed[id(found)] = value
        return found

    def tf32(self, x: Value) -> bool:
        """Whether a product of ``x`` may round its factors to TF32."""
        return self.rounds and name_of(x) == "f32"

    def panels(self, matrix: Value, x: Value, transposed: bool) -> Value:
        """A constant matrix in panels of few columns, f32[n, k, w], for a product that is faster with them; else None.

        On a CPU, OpenBLAS copies a matrix before it multiplies it, which takes as long as a product with few rows. It
        multiplies small matrices where they are, such as panels.

        Args:
            matrix: ``[k, columns]``.
            x: What it is multiplied with: ``[..., k]``.
            transposed: ``matrix`` is ``[columns, k]``.
        """
        array: Value = self._placed.get(id(matrix), matrix)
        product: Any = x
        if id(array) not in self._lasting or not isinstance(x, Operand) or array.dtype != np.float32 or array.ndim != 2:
            return None
        k, columns = array.shape[::-1] if transposed else array.shape
        rows = math.prod(x.shape[:-1])
        width = next((w for w in PANELS if rows * k * w <= MOST_PRODUCTS and columns % w == 0), 0)
        if rows < 2 or not width or array.size < LEAST_PANELS or not product.device.lower().startswith("cpu"):
            return None
        key = width, transposed, id(array)
        if key not in self._constants:
            taken = self._constants.get("panels", 0) + array.size
            if taken > MOST_PANELS:
                return None
            turned = array.reshape(-1, width, k).transpose(0, 2, 1) if transposed else array.reshape(k, -1, width)
            laid = np.ascontiguousarray(turned if transposed else turned.transpose(1, 0, 2))
            assert self._put is not None, "there is no operand without a device"
            self._constants |= {key: (settled(self._put, laid), array), "panels": taken}
        return self._constants[key][0]

    def remembered(self, constants: dict[Any, Any], lasting: frozenset[int]) -> None:
        """Use these refs of constants, by the identity of their host arrays, and keep those of ``lasting`` ones there.

        Other arrays of the host are of this execution alone.
        """
        self._constants, self._lasting = constants, lasting

    def once(self, key: Any, source: Value, make: Callable[[], Any]) -> Any:
        """What is made of a value, once in an execution.

        Args:
            key: Names what is made; has the identity of ``source``.
            source: The value.
            make: Makes it.
        """
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make(), source  # which keeps its identity
        return found[0]

    def both(self, *values: Value) -> tuple[Any, tuple[Any, ...]]:
        """The namespace of arrays, and the values in it: NumPy if all are on the host, else the device's."""
        if all(not isinstance(value, Operand) for value in values):
            return np, values
        refs = tuple(map(self.ref, values))
        return refs[0]._port.services.xp, refs

    def xp(self, value: Value) -> Any:
        """The namespace of one value."""
        return self.ref(value)._port.services.xp if isinstance(value, Operand) else np

    def sized(self, shape: Iterable[int], *sources: Value) -> tuple[int, ...]:
        """The shape of an array, checked before it is made.

        Args:
            shape: The shape.
            sources: What it is computed of. If a ref is among them, the device makes it; otherwise this process does.
                A result that has no more elements than one of them is never too large.

        Raises:
            ResultTooLarge: It has more elements than are allowed there.
            NotHere: As that, while constants are computed.
            InputRefused: An extent is negative.
        """
        extents = tuple(map(int, shape))
        if any(n < 0 for n in extents):
            raise self.misfit(f"the shape {list(extents)} has a negative extent")
        given = max((math.prod(each.shape) for each in sources), default=0)
        made = math.prod(extents)
        if self._submit is None and made > max(self._largest, given):
            raise NotHere(made)
        most = LARGEST_THERE if any(isinstance(each, Operand) for each in sources) else LARGEST_HERE
        if made > max(most, given):
            raise ResultTooLarge(
                f"{self.title}: the shape {list(extents)} is too large: at most {most} elements are made"
            )
        return extents

    def together(self, *values: Value) -> tuple[Any, tuple[Any, ...]]:
        """As :meth:`both`, for values that are broadcast to one shape, which is checked.

        Raises:
            ResultTooLarge: It has more elements than are allowed.
        """
        first, *others = shapes = [tuple(value.shape) for value in values]
        if any(other != first for other in others) and (shape := broadcast(shapes)) is not None:
            self.sized(shape, *values)
        return self.both(*values)

    def map(self, expression: str, **values: Value) -> Any:
        """``dev.elementwise.map`` of arrays and numbers; as the functions of ``dev.xp``, a part of what reads it."""
        if self._submit is None:
            raise HostOnly
        named = {
            name: self.ref(value) if isinstance(value, np.ndarray | np.generic | Operand) else value
            for name, value in values.items()
        }
        arrays: list[Any] = [each for each in named.values() if isinstance(each, Operand)]
        if (shape := broadcast([each.shape for each in arrays])) is not None:
            self.sized(shape, *arrays)
        if not arrays:
            return self._elementwise.map(expression, **named)
        order = sorted(named, key=lambda name: _place(expression, name))
        return arrays[0]._port.services.xp._apply(expression, **{name: named[name] for name in order})

    def host(self, value: Value, what: str) -> "np.ndarray[Any, Any]":
        """A value that shapes depend on, and that therefore must be known before the execution.

        Raises:
            UnsupportedOp: It is computed on the device.
        """
        if isinstance(value, Operand):
            raise self.refusal(f"{what} is computed on the device, and must be known on the host: pass NumPy arrays")
        return np.asarray(value)

    def expect(self, value: Value, what: str, *shape: int | None) -> None:
        """Check the shape of an input; None: any extent.

        Raises:
            InputRefused: It has another one.
        """
        found = list(value.shape)
        if len(found) != len(shape) or any(n is not None and n != own for n, own in zip(shape, found, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise self.misfit(f"{what} has the shape {found}, expected [{wanted}]")

    def fits(self, value: Value, what: str, shape: tuple[int, ...]) -> None:
        """Check that an input is broadcast to this shape, and does not widen it.

        Raises:
            InputRefused: It does not fit.
        """
        if broadcast([shape, tuple(value.shape)]) != shape:
            raise self.misfit(f"{what} has the shape {list(value.shape)}, which is not broadcast to {list(shape)}")

    def counts(self, value: Value, what: str, most: int, shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
        """Integers on the host from 0 to ``most``, such as lengths of sequences, of this shape.

        Raises:
            InputRefused: One is outside, or the shape is another one.
            UnsupportedOp: As for :meth:`host`.
        """
        found = self.host(value, what)
        self.expect(found, what, *shape)
        if (wrong := found[(found < 0) | (found > most)]).size:
            raise self.misfit(f"{what} holds {wrong[0]}, and takes 0 to {most}")
        return found

    def axis(self, value: int, axes: int) -> int:
        """The axis of a number that counts from either end.

        Raises:
            InputRefused: There is none.
        """
        if not -axes <= value < axes:
            raise self.misfit(f"the axis is {value}, of {axes} axes")
        return value % axes

    def ints(self, value: Value, what: str) -> list[int]:
        """A list of integers on the host."""
        return [int(each) for each in self.host(value, what).ravel()]

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another dtype."""
        to = DTYPES[dtype]
        if not isinstance(value, Operand):
            return value.astype(to.np)
        return value if value.dtype is to else self.submit(Cast(src=value, dtype=to))

    def element(self, code: int) -> str:
        """The dtype of ONNX's code.

        Raises:
            UnsupportedOp: The ops have none.
        """
        dtype = ELEMENTS.get(code, "")
        if not dtype or dtype.startswith("c"):
            raise self.refusal(f"the element type {dtype or code} is not mapped")
        return dtype

    def refusal(self, why: str) -> UnsupportedOp:
        """The error of an operator that cannot be mapped."""
        return UnsupportedOp(f"{self.title}: {why}")

    def misfit(self, why: str) -> InputRefused:
        """The error of an operator that has no result for these values or shapes."""
        return InputRefused(f"{self.title}: {why}")


@functools.lru_cache(maxsize=256)
def _place(expression: str, name: str) -> int:
    """Where a name first appears in an expression."""
    found = re.search(rf"\b{name}\b", expression)
    assert found is not None, f"{name} is not in {expression}"
    return found.start()


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
