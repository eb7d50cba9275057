"""What a call was given for its inputs, by their names, as refs and NumPy arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.operand import Operand
from callboard.core.ref.hostarrays import refuse_masked
from callboard.kernel.engine.inputs.profiles import Port

__all__ = ["arrays_of", "by_name", "in_order"]

MOST_NAMED = 8
"""Names of inputs in an error."""


def by_name(title: str, ports: Sequence[Port], inputs: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a call.

    Raises:
        TypeError: They are no mapping.
    """
    if inputs is not None and not isinstance(inputs, Mapping):
        raise TypeError(
            f"{title}: inputs is {type(inputs).__name__}; pass a dict from the names of the inputs ({_named(ports)})"
        )
    return {**(inputs or {}), **more}


def in_order(names: Sequence[str], named: Mapping[str, Any]) -> list[Any] | None:
    """The refs and NumPy arrays of a call in the order of the inputs; None if one is missing, or something else."""
    if len(named) != len(names):
        return None
    found = [named.get(name) for name in names]
    for each in found:
        if not (type(each) is np.ndarray or isinstance(each, Operand)):
            return None
    return found


def arrays_of(title: str, ports: Sequence[Port], weights: Mapping[str, Any], named: Mapping[str, Any]) -> list[Any]:
    """A ref or an array for each input. Python's numbers, and lists of them, become arrays of the input's dtype.

    Args:
        title: Name of the model.
        ports: Its inputs.
        weights: Its initializers.
        named: What was given, by name.

    Raises:
        ShapeError: An input is missing, or unknown, or a number does not fit into its dtype.
        TypeError: An array has masked elements.
    """
    names = {port.name for port in ports}
    if unknown := [name for name in named if name not in names]:
        if unknown[0] in weights:
            raise ShapeError(
                f"{title}: {unknown[0]!r} is a weight with a value in the model, and no input of a call; build the "
                f"plan with refit=True, and replace it by plan.refit"
            )
        raise ShapeError(f"{title}: there is no input {unknown[0]!r}; the inputs are {_named(ports)}")
    found: list[Any] = []
    for port in ports:
        value = named.get(port.name)
        if value is None:
            raise ShapeError(f"{title}: input {port.name!r} is missing; the inputs are {_named(ports)}")
        if isinstance(value, Operand):
            found.append(value)
            continue
        refuse_masked(value, f"{title}: input {port.name!r}", "array.filled(value)")
        if isinstance(value, bool | int | float | list | tuple):
            found.append(_converted(title, port, value))
        else:
            found.append(np.asarray(value))
    return found


def _converted(title: str, port: Port, value: Any) -> "np.ndarray[Any, Any]":
    """Numbers of Python, which have no dtype of their own, in that of the input; as they are if that would change them.

    Whole numbers become floating-point ones, as in NumPy, and none becomes a whole one.
    """
    wanted = DTYPES[port.dtype]
    kinds = "b" if port.dtype == "bool" else "iuf" if wanted.is_float else "iu"
    try:
        array = np.asarray(value)
        plain = array.dtype in (np.bool_, np.int64, np.uint64, np.float64) and array.dtype.kind in kinds
        if not plain:
            return array
        with np.errstate(over="ignore", invalid="ignore"):
            found = array.astype(wanted.np) if wanted.is_float else np.asarray(value, wanted.np)
            wide = found.astype("f8")
            lost = np.isinf(wide) & np.isfinite(array)
            if array.dtype.kind in "iu":
                lost |= wide != array.astype("f8")
        if np.any(lost):
            raise ValueError(f"{array[lost][0] if array.ndim else array} is no number of {port.dtype}")
        return found
    except (ValueError, OverflowError) as e:
        raise ShapeError(f"{title}: input {port.name!r}: {e}; expected {port}") from e


def _named(ports: Sequence[Port]) -> str:
    names = [port.name for port in ports[:MOST_NAMED]]
    return ", ".join([*names, *(["…"] if len(ports) > MOST_NAMED else [])]) or "none"
