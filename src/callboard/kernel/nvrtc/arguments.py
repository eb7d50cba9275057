"""From a caller's arguments to the fields of a launch: arrays by role, and numbers of the declared dtype."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.operand import Operand
from callboard.kernel.nvrtc.parameters import Declared, Parameters

__all__ = ["assigned", "number"]

_finfo: Any = ml_dtypes.finfo  # NumPy's too
LARGEST = {
    name: float(_finfo(dtype.real.np).max)
    for name, dtype in DTYPES.items()
    if (dtype.is_float or dtype.is_complex) and dtype.real.name != "f64"
}
"""The largest number of each dtype that is narrower than Python's floats."""

BOUNDS = {name: (int(np.iinfo(d.np).min), int(np.iinfo(d.np).max)) for name, d in DTYPES.items() if d.is_integer}
BOUNDS["bool"] = 0, 1


def assigned(
    tag: str, parameters: Parameters, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and numbers by name; of the outputs those that are given.

    Raises:
        TypeError: An argument is missing, unknown, passed twice, or of the wrong kind; names it.
    """
    if len(args) > len(parameters.passed):
        names = ", ".join(one.name for one in parameters.passed)
        raise TypeError(
            f"{tag} takes {len(parameters.passed)} arguments by position ({names}), {len(args)} were passed"
        )
    given = dict(zip((one.name for one in parameters.passed), args, strict=False))
    for name, value in named.items():
        if name in given:
            raise TypeError(f"{tag}: {name} is passed twice")
        given[name] = value
    arrays: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for one in parameters.all:
        if one.name not in given:
            if one.is_passed:
                raise TypeError(f"{tag}: {one.name} is missing; it takes {_shown(one)}")
            continue
        value = given.pop(one.name)
        if one.formula:
            raise TypeError(f"{tag}: {one.name} is not passed: it follows from the shapes ({one.formula})")
        if not one.is_array:
            numbers[one.name] = value
        elif isinstance(value, Operand):
            arrays[one.name] = value
        elif value is not None or one.is_passed:
            raise TypeError(f"{tag}: {one.name} is {type(value).__name__}; pass a GpuRef (dev.put(array) makes one)")
    for name in given:
        raise TypeError(
            f"{tag} has no parameter {name}; its parameters are {', '.join(p.name for p in parameters.all)}"
        )
    outs = [one.name for one in parameters.outs]
    missing = [name for name in outs if name not in arrays]
    if missing and len(missing) < len(outs):
        raise TypeError(f"{tag}: {missing[0]} is missing; pass all outputs or none ({', '.join(outs)})")
    return arrays, numbers


def number(tag: str, name: str, dtype: str, value: Any) -> int | float | complex:
    """A number as a launch has it: an integer for integer dtypes, a float or complex number otherwise.

    Raises:
        TypeError: It is not a number, or not an integer although one is needed.
        ShapeError: It does not fit the dtype.
    """
    kind = DTYPES[dtype]
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, Operand):
        raise TypeError(f"{tag}: {name} is an array; pass a number, or declare it as an array: 'in {name}: {dtype}[]'")
    if not kind.is_float and not kind.is_complex:
        try:
            whole = operator.index(value)
        except TypeError:
            raise TypeError(f"{tag}: {name} is {value!r}; {dtype} takes an integer") from None
        low, high = BOUNDS[dtype]
        if not low <= whole <= high:
            raise ShapeError(f"{tag}: {name} is {whole}; {dtype} holds {low} to {high}")
        return whole
    if not isinstance(value, int | float | complex | np.number | np.bool_):
        raise TypeError(f"{tag}: {name} is {type(value).__name__}; pass a number")
    if isinstance(value, complex | np.complexfloating) and not kind.is_complex:
        raise TypeError(f"{tag}: {name} is {value!r}; {dtype} takes a real number")
    most = LARGEST.get(dtype)
    parts: tuple[Any, ...] = (value.real, value.imag) if kind.is_complex else (value,)
    if most is not None and any(most < abs(part) < math.inf for part in parts):
        raise ShapeError(f"{tag}: {name} is {value!r}; {dtype} holds up to {most:.3g}")
    return complex(value) if kind.is_complex else float(parts[0])


def _shown(one: Declared) -> str:
    return f"{one.kind} {one.dtype}[{', '.join(one.shape)}]" if one.is_array else f"a number, {one.dtype}"
