"""A message of each op, with operands that can be computed with."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from tests.kernel.probing import accepts, messages_of

from callboard.core.dtype import DTYPES
from callboard.core.errors import AccelError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.library import AnyOp, Library
from callboard.core.op import outputs_of
from callboard.core.operand import Operand, Placeholder, StructOperand, operands_of
from callboard.kernel.sparse_lt.structured import StructuredRef

__all__ = ["drawn", "message_of", "templates_of", "with_arrays"]

ORDER = ("f16", "f32", "c64", "i32", "f8_e4m3")
LOAD = "__device__ real load(const real *x, unsigned long long i, const void *data) { return x[i]; }"
"""Of a transform with a function of the user's."""


def array_of(layout: Layout) -> "np.ndarray[Any, Any]":
    """Matrices are the identity, indices count upwards, all other vectors and numbers are 1.

    Struct operands of such arrays are identities too, permutations permute nothing, and every system has a solution.
    """
    kind = layout.dtype.np
    if len(layout.shape) >= 2:
        return np.broadcast_to(np.eye(*layout.shape[-2:]), layout.shape).astype(kind)
    if layout.dtype.name == "i32":
        return np.arange(layout.size, dtype=kind).reshape(layout.shape)
    return np.ones(layout.shape).astype(kind)


def drawn(layout: Layout) -> "np.ndarray[Any, Any]":
    """Like :func:`array_of`, but floats are drawn: a vector is of numbers like variances, which are not negative."""
    if not layout.dtype.is_float:
        return array_of(layout)
    found = np.random.default_rng(layout.size).standard_normal(layout.shape)
    return (abs(found) + 0.5 if len(layout.shape) < 2 else found).astype(layout.dtype.np)


def filled(device: Any, value: Any, make: Callable[[Layout], Any]) -> Any:
    """The same with arrays in place of placeholders."""
    if isinstance(value, StructuredRef):
        return device.sparse_lt.compress(device.put(np.eye(*value.shape), dtype=value.dtype))
    if isinstance(value, StructOperand):
        return msgspec.structs.replace(value, **{n: filled(device, x, make) for n, x in operands_of(value).items()})
    if isinstance(value, tuple):
        return tuple(filled(device, one, make) for one in value)
    if not isinstance(value, Placeholder):
        return value
    whole = make(value.layout)
    column_major = len(value.layout.shape) == 2 and value.layout.strides[0] == 1 != value.layout.strides[1]
    return device.put(whole.T).T if column_major else device.put(whole)


def fits(library: type[Library], message: AnyOp) -> bool:
    try:
        outputs_of(message)
    except (AccelError, TypeError):
        return False
    return library.why_not(message) is None


def templates_of(op: type[AnyOp], library: type[Library], dtypes: Sequence[str] = ORDER) -> Iterator[AnyOp]:
    """Messages of placeholders, of the first of these dtypes that the library takes; the fewest axes first."""
    dtype = next((d for d in map(DTYPES.__getitem__, dtypes) if accepts(op, library, d)), None)
    for message in () if dtype is None else messages_of(op, dtype):
        if fits(library, message):
            yield message


def with_arrays(device: Any, message: AnyOp, make: Callable[[str, Layout], Any]) -> AnyOp:
    """A message with arrays of a device in place of placeholders, made from a field's name and a layout."""
    given = msgspec.structs.asdict(message)
    fields = {name: filled(device, value, partial(make, name)) for name, value in given.items()}
    if "offsets" in fields:  # of segments: they begin at 0 and end with the array
        values = next(value for value in fields.values() if isinstance(value, Operand))
        ends = np.linspace(0, values.size, fields["offsets"].size).astype(fields["offsets"].dtype.np)
        fields["offsets"] = device.put(ends)
    if fields.get("seqlens_k") is not None:
        fields["seqlens_k"] = device.put(np.ones(fields["seqlens_k"].size, "i4"))
    if "targets" in fields:  # pages that are no sources
        fields["targets"] = device.put(np.arange(fields["sources"].size, dtype="i4") + fields["sources"].size)
    if "upper" in fields and fields["lower"] >= fields["upper"]:  # of a range, which ends at 1
        fields["lower"] = 0.0
    if fields.get("load") is not None:
        fields["load"] = LOAD
    return msgspec.structs.replace(message, **fields)


def message_of(
    device: Any,
    op: type[AnyOp],
    library: type[Library],
    dtypes: Sequence[str] = ORDER,
    make: Callable[[Layout], Any] = array_of,
) -> AnyOp:
    """Of the first of these dtypes that the library takes, with arrays of a device or of a session of the suites."""
    message = next(templates_of(op, library, dtypes), None)
    if message is None:
        raise UnsupportedOp(f"{library.__name__} takes none of the messages of {op.__name__} that are made here")
    return with_arrays(device, message, lambda name, layout: make(layout))
