"""``Tensor``: a named input or output of a model, in the terms of the Open Inference Protocol."""

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from callboard.core.ref.hostarrays import is_masked
from callboard.serve.errors import BadModelResult, BadRequest

__all__ = ["DATATYPES", "Array", "Tensor", "index_of"]

Array = np.ndarray[Any, Any]

DATATYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
"""NumPy's dtype of each datatype of the protocol. An array of BYTES holds ``bytes`` objects."""

TEXT = "TEXT"
"""In place of BYTES: the elements are ``str`` for the model, and UTF-8 on the wire."""

MOST_BYTES = 2**62
"""Of an array, its empty extents counted as 1: NumPy refuses shapes beyond 2**63 bytes."""


class Tensor:
    """Name, datatype and shape of an input or an output.

    Args:
        name: Name in requests and responses.
        datatype: ``"FP32"``, ``"INT64"``, ``"BYTES"`` …: a key of :data:`DATATYPES`. Or ``"TEXT"``: clients send and
            get BYTES that are UTF-8, and the model gets and gives ``str``, in arrays of objects.
        shape: Extents; -1 where any is taken.

    Attributes:
        name, shape: The arguments.
        datatype: The datatype of the protocol: ``"BYTES"`` for ``"TEXT"``.
        text: True for ``"TEXT"``.
        dtype: NumPy's dtype of its arrays.

    Raises:
        ValueError: An unknown datatype, or an extent below -1.
    """

    def __init__(self, name: str, datatype: str, shape: Sequence[int]) -> None:
        self.text = datatype == TEXT
        if not self.text and datatype not in DATATYPES:
            known = ", ".join([*DATATYPES, TEXT])
            raise ValueError(f"tensor {name!r}: datatype is {datatype!r}; use one of {known}")
        if any(extent < -1 for extent in shape):
            raise ValueError(f"tensor {name!r}: shape is {list(shape)}; extents are at least 0, or -1 for any")
        self.name = name
        self.datatype = "BYTES" if self.text else datatype
        self.shape = tuple(shape)
        self.dtype = DATATYPES[self.datatype]
        self._fixed = -1 not in self.shape

    def fits(self, shape: Sequence[int]) -> bool:
        """True if an array may have this shape."""
        if self._fixed:
            return tuple(shape) == self.shape
        return len(shape) == len(self.shape) and all(
            mine in (-1, other) for mine, other in zip(self.shape, shape, strict=True)
        )

    def check_request(self, datatype: str, shape: Sequence[int]) -> None:
        """Refuse a request's input that does not fit.

        Raises:
            BadRequest: Another datatype, or a shape that does not fit.
        """
        if datatype != self.datatype:
            raise BadRequest(f"input {self.name!r} is {datatype}, but the model takes {self.datatype}")
        if min(shape, default=0) < 0:
            raise BadRequest(f"input {self.name!r} has shape {list(shape)}; the extents of a request are at least 0")
        if not self.fits(shape):
            raise BadRequest(f"input {self.name!r} has shape {list(shape)}, but the model takes {list(self.shape)}")
        if math.prod(extent or 1 for extent in shape) * self.dtype.itemsize > MOST_BYTES:
            raise BadRequest(f"input {self.name!r} has shape {list(shape)}, which is larger than any array")

    def check_result(self, value: Any) -> Array:
        """Return the array that a model returned for this output.

        Raises:
            BadModelResult: The result does not fit the declared outputs.
        """
        if is_masked(value):
            raise BadModelResult(f"output {self.name!r} has masked elements; fill them, array.filled(value)")
        array = self._texts(value) if self.datatype == "BYTES" else np.asarray(value)
        if array.dtype != self.dtype and array.dtype.newbyteorder("<") != self.dtype:
            raise BadModelResult(
                f"output {self.name!r} is {array.dtype}, but declared as {self.datatype}: "
                f"convert it, or declare another datatype"
            )
        if not self.fits(array.shape):
            raise BadModelResult(
                f"output {self.name!r} has shape {list(array.shape)}, but is declared as {list(self.shape)}"
            )
        return array

    def _texts(self, value: Any) -> Array:
        """An output as objects: NumPy's own texts and bytes lose zeros at the end, if they are made of a list."""
        array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else np.array(value, object)
        if array.dtype.kind in "SUT":
            array = array.astype(object)
        if array.dtype != object:
            raise BadModelResult(f"output {self.name!r} is {array.dtype}, but declared as BYTES: give bytes or str")
        values = array.ravel().tolist()
        if set(map(type, values)) <= ({str} if self.text else {str, bytes}):  # fast, as there may be many
            return array
        for i, each in enumerate(values):
            if not isinstance(each, str | bytes):
                what = f"{type(each).__name__}, but declared as BYTES: give bytes or str"
                raise BadModelResult(f"output {self.name!r}: element {index_of(i, array.shape)} is {what}")
            if self.text and isinstance(each, bytes):
                try:
                    each.decode()
                except UnicodeDecodeError as e:
                    text = f"output {self.name!r}: element {index_of(i, array.shape)} is not UTF-8: {e}"
                    raise BadModelResult(text) from e
        return array

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {(TEXT if self.text else self.datatype)!r}, {list(self.shape)})"


def index_of(number: int, shape: Sequence[int]) -> list[int]:
    """The index of an element, whose number is that in row-major order."""
    return [int(each) for each in np.unravel_index(number, shape)]
