"""``cb.elementwise``: an expression as a function of arrays and numbers."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from callboard.core.dtype import DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.op import Op, Repeated, info_of
from callboard.core.ref import GpuRef
from callboard.kernel.elementwise.language import Expression, read
from callboard.kernel.elementwise.map import Map, MapMany, program_of, shape_of_operands
from callboard.kernel.elementwise.reduce import Reduce, as_axes
from callboard.kernel.elementwise.reduction import check_reduction
from callboard.kernel.memory import Empty

__all__ = [
    "Argument",
    "Elementwise",
    "ElementwiseMany",
    "Reduced",
    "bound",
    "elementwise",
    "names_of",
    "readable",
    "reduction",
    "submit_many",
    "submit_map",
    "submit_reduce",
]

Submit = Callable[[Any], Any]
Argument = GpuRef[Mode] | complex | np.number[Any] | np.bool_
"""An input of an expression: an array on a device, or a number."""
PLAIN = (float, int, complex)
repeated = tuple.__new__  # a NamedTuple's own constructor costs twice as much
KNOWN = 256
"""Kinds of arguments cached for one expression."""
NUMBERS = (bool, int, float, complex, np.number, np.bool_)
R = TypeVar("R")


class Called(Generic[R]):
    """Base of expressions that are called."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = readable(expression.text, "out", "outs")

    @property
    def text(self) -> str:
        """The expression as it was written."""
        return self._expression.text

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments, in order: as they appear in the text."""
        return self._expression.inputs

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text!r} of {', '.join(self.inputs)}>"


class Elementwise(Called[Any]):
    """An expression; calling it computes the last statement. See :func:`elementwise`."""

    __slots__ = ("_known",)

    def __init__(self, expression: Expression) -> None:
        super().__init__(expression)
        self._known: dict[tuple[Any, ...], bytes] = {}  # signatures by the kinds of the arguments

    def __call__(
        self, /, *operands: Argument[Mode], out: GpuRef[Mode] | None = None, **named: Argument[Mode]
    ) -> GpuRef[Mode]:
        """Enqueue it, on the device of its arrays.

        Args:
            operands: The inputs in order; arrays of shapes that broadcast, or numbers.
            out: Array of the result's dtype and shape. When None: the input that has the result's name, or else a new
                row-major array.
            named: The other inputs by name.

        Raises:
            TypeError: An input is missing, unknown, or neither an array nor a number.
            ShapeError: Shapes do not broadcast, or these dtypes do not have the functions that are called.
        """
        given = bound(self._expression, operands, named)
        if out is None:
            out = _in_place(given.get(self._expression.target))
        answer: GpuRef[Mode] = submit_of(self._expression, given)(self._message(given, out))
        return answer

    def _message(self, given: Mapping[str, Any], out: Any) -> Op[Any, Any] | Repeated:
        """The message; a :class:`Repeated` if the arguments are like earlier ones."""
        expression = self._expression
        operands: list[Any] = []
        scalars: list[Any] = []
        key: list[Any] = []
        for value in given.values():
            if isinstance(value, GpuRef):
                key.append(value.layout.wire)
                operands.append(value)
            elif type(value) is float:
                key.append(float)
                scalars.append(value)
            else:  # to be converted, or checked
                return Map(out=out, **fields_of(expression, given))
        if out is not None:
            key.append(out.layout.wire)
            operands.append(out)
        kinds = tuple(key)
        signature = self._known.get(kinds)
        if signature is not None:
            made = lambda: Map(out=out, **fields_of(expression, given))
            return repeated(Repeated, (signature, operands, scalars, made))
        message = Map(out=out, **fields_of(expression, given))
        if len(self._known) < KNOWN:
            self._known[kinds] = info_of(Map).split(message).signature
        return message


class ElementwiseMany(Called[Any]):
    """An expression with several results; calling it computes them in one pass. See :func:`elementwise`."""

    __slots__ = ("results",)

    def __init__(self, expression: Expression, results: tuple[str, ...]) -> None:
        super().__init__(expression)
        self.results = results

    def __call__(
        self, /, *operands: Argument[Mode], outs: Sequence[GpuRef[Mode] | None] | None = None, **named: Argument[Mode]
    ) -> tuple[GpuRef[Mode], ...]:
        """Enqueue it, on the device of its arrays; the results in the order of their names.

        Args:
            operands: The inputs in order; arrays of shapes that broadcast, or numbers.
            outs: For each result, an array of its dtype and shape, or None for a new one.
            named: The other inputs by name.

        Raises:
            TypeError, ShapeError: See :meth:`Elementwise.__call__`.
        """
        given = bound(self._expression, operands, named)
        submit = submit_of(self._expression, given)
        answer: tuple[GpuRef[Mode], ...] = submit_many(submit, self._expression, self.results, given, outs)
        return answer


@overload
def elementwise(expression: str, *, results: None = None) -> Elementwise: ...
@overload
def elementwise(expression: str, *, results: Sequence[str]) -> ElementwiseMany: ...
def elementwise(expression: str, *, results: Sequence[str] | None = None) -> "Elementwise | ElementwiseMany":
    """An expression on elements, as one kernel: ``f = cb.elementwise("z = alpha * x + max(y, 0)")``.

    ``f(2.0, x, y)`` and ``f(x=x, y=y, alpha=2.0)`` compute it on the device of the arrays. Arrays broadcast; dtypes are
    promoted by the array API standard's rules, and numbers take the dtype of the array beside them. A result that is
    called as one of the inputs is written into it: ``"x += alpha * y"``.

    f16 and bf16 are computed in f32 and rounded when they are stored or converted, not after each operation. Integers
    wrap around, ``//`` and ``%`` round down as Python's do (by 0 they give 0), and a NaN wins in ``max`` and ``min``
    (it loses in ``fmax`` and ``fmin``).

    Args:
        expression: Assignments, separated by ``;`` or line ends (:mod:`callboard.kernel.elementwise.language`).
        results: Names of the assigned results to return, as a tuple of arrays; None returns only the last one.

    Raises:
        ShapeError: The text is not a valid expression; quotes the place.
    """
    read_ = read(expression)
    if results is None:
        return Elementwise(read_)
    return ElementwiseMany(read_, names_of(read_, results))


class Reduced(Called[Any]):
    """A reduction of an expression; calling it computes it. See :func:`reduction`."""

    __slots__ = ("_settings",)

    def __init__(
        self, expression: Expression, axes: tuple[int, ...] | None, keepdims: bool, dtype: DTypeLike | None
    ) -> None:
        super().__init__(expression)
        self._settings = {"axes": axes, "keepdims": keepdims, "dtype": dtype}

    def __call__(
        self, /, *operands: Argument[Mode], out: GpuRef[Mode] | None = None, **named: Argument[Mode]
    ) -> GpuRef[Mode]:
        """Enqueue it, on the device of its arrays.

        Args:
            operands: The inputs in order; arrays of shapes that broadcast, or numbers.
            out: Array of the result's dtype and shape; a new row-major array when None.
            named: The other inputs by name.

        Raises:
            TypeError, ShapeError: See :meth:`Elementwise.__call__`; also raised if an axis is out of range, or if
                ``min`` or ``max`` has no element.
        """
        given = bound(self._expression, operands, named)
        submit = submit_of(self._expression, given)
        return submit_reduce(submit, self._expression, given, {**self._settings, "out": out})  # type: ignore[no-any-return]


def reduction(
    expression: str,
    *,
    axis: int | Iterable[int] | None = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
) -> Reduced:
    """An expression, reduced along axes as one kernel: ``dots = cb.reduction("sum(x * y)", axis=1)``.

    ``dots(x, y)`` computes it on the device of the arrays. The last statement contains one call of ``sum``, ``prod``,
    ``mean``, ``min``, ``max``, ``any``, ``all``, ``argmin`` or ``argmax``, and may compute with its result and numbers,
    as in ``"sqrt(sum(x * x))"``. :class:`~callboard.kernel.elementwise.Reduce` documents how elements are combined.

    Args:
        expression: See :func:`elementwise`.
        axis: Axes of the arrays' common shape: one, several, or None for all.
        keepdims: Keep the axes, with an extent of 1.
        dtype: The dtype in which a sum, product or mean is accumulated and returned.

    Raises:
        ShapeError: The text is not a valid expression; quotes the place.
    """
    text = read(expression)
    check_reduction(text)
    return Reduced(text, as_axes(axis), keepdims, dtype)


# -- messages ----------------------------------------------------------------------------------------------------------


def readable(text: str, *settings: str) -> Expression:
    """An expression, read, whose inputs can all be given by name.

    Args:
        settings: The names that the call has for other things.

    Raises:
        ShapeError: An input has such a name.
    """
    expression = read(text)
    for name in settings:
        if name in expression.inputs:
            raise ShapeError(f"expression {text!r}: {name} is a setting of the call; rename the input")
    return expression


def names_of(expression: Expression, results: Sequence[str]) -> tuple[str, ...]:
    """Names of results, as the text is read.

    Raises:
        ShapeError: One is not assigned, or named twice; or there is none.
    """
    given = (results,) if isinstance(results, str) else results
    names = tuple(unicodedata.normalize("NFKC", name) for name in given)
    targets = {target for target, _ in expression.statements}
    for name in names:
        if name not in targets:
            there = ", ".join(sorted(targets))
            raise ShapeError(f"expression {expression.text!r}: {name!r} is not assigned; there are {there}")
    if not names or len(set(names)) < len(names):
        raise ShapeError(f"results {names}: name each result once")
    return names


def bound(expression: Expression, operands: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Every input with its argument, in the order of the inputs.

    Raises:
        TypeError: One is missing, unknown or given twice.
    """
    inputs = expression.inputs
    if not named and len(operands) == len(inputs):
        return dict(zip(inputs, operands, strict=True))
    if len(operands) > len(inputs):
        raise TypeError(f"{expression.text!r} takes {len(inputs)} arguments ({', '.join(inputs)}), not {len(operands)}")
    given = dict(zip(inputs, operands, strict=False))
    for name, value in named.items():
        if name not in inputs:
            name = unicodedata.normalize("NFKC", name)  # as the text is read
        if name not in inputs:
            raise TypeError(f"{expression.text!r} has no input {name!r}; it has {', '.join(inputs)}")
        if name in given:
            raise TypeError(f"{expression.text!r}: {name!r} is given twice, by position and by name")
        given[name] = value
    missing = [name for name in inputs if name not in given]
    if missing:
        raise TypeError(f"{expression.text!r}: {missing[0]!r} is missing; pass {missing[0]}=")
    return {name: given[name] for name in inputs}


def submit_of(expression: Expression, given: Mapping[str, Any]) -> Submit:
    """Return the ``submit`` of the device of the arrays."""
    for value in given.values():
        if isinstance(value, GpuRef):
            return value._port.submit
    raise TypeError(f"{expression.text!r} is given no array (a GpuRef), so no device; dev.full(shape, x) fills one")


def fields_of(expression: Expression, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message with these arguments."""
    operands: list[Any] = []
    scalars: list[Any] = []
    numbers: list[str] = []
    bools: list[str] = []
    for name, value in given.items():
        if isinstance(value, GpuRef):
            operands.append(value)
            continue
        numbers.append(name)
        if type(value) not in PLAIN:
            if isinstance(value, np.ndarray) and value.ndim == 0:
                value = value[()]
            if not isinstance(value, NUMBERS):
                kind = type(value).__name__
                raise TypeError(
                    f"{expression.text!r}: {name} is {kind}; pass a GpuRef (dev.put(array) makes one) or a number"
                )
            if isinstance(value, bool | np.bool_):
                bools.append(name)
        scalars.append(value)
    return {
        "expression": expression.text,
        "operands": tuple(operands),
        "scalars": tuple(scalars),
        "numbers": tuple(numbers),
        "bools": tuple(bools),
    }


def submit_map(submit: Submit, expression: Expression, given: Mapping[str, Any], out: Any) -> Any:
    """Submit one result."""
    if out is None:
        out = _in_place(given.get(expression.target))
    return submit(Map(out=out, **fields_of(expression, given)))


def submit_reduce(submit: Submit, expression: Expression, given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """Submit a reduction."""
    return submit(Reduce(**settings, **fields_of(expression, given)))


def submit_many(
    submit: Submit, expression: Expression, results: tuple[str, ...], given: Mapping[str, Any], outs: Any
) -> Any:
    """Submit several results; those without an array get a new one."""
    places: list[Any] = [None] * len(results) if outs is None else list(outs)
    if len(places) != len(results):
        raise ShapeError(f"{expression.text!r}: {len(places)} outs for the results {', '.join(results)}")
    places = [_in_place(given.get(name)) if out is None else out for name, out in zip(results, places, strict=True)]
    fields = fields_of(expression, given)
    if any(out is None for out in places):
        message = Map(**fields)  # checked before anything is made
        program, shape = program_of(message, results), shape_of_operands(message)
        dtypes = [program.steps[result].dtype.name for result in program.results]
        places = [
            submit(Empty(shape=shape, dtype=dtype)) if out is None else out
            for out, dtype in zip(places, dtypes, strict=True)
        ]
    return submit(MapMany(outs=tuple(places), keep=results, **fields))


def _in_place(value: Any) -> Any:
    return value if isinstance(value, GpuRef) else None
