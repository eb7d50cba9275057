"""How rows are stored: as they are, as f16, or as i8 with a scale for each row."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowType", "decode", "encode"]

RowType = Literal["f32", "f16", "i8"]
Floats = NDArray[np.float32]
FEW = 8192
"""Numbers of f16 that NumPy converts as fast as a longer way does."""


def encode(rows: Floats, kind: RowType) -> tuple[NDArray[Any], Floats | None]:
    """Stored rows and their scales (i8 only).

    Raises:
        ValueError: f16 cannot hold a number.
    """
    if kind == "f32":
        return rows, None
    if kind == "f16":
        if rows.size and (largest := float(np.abs(rows).max())) > 65504:
            raise ValueError(f"vectors holds {largest:g}; f16 ends at 65504: scale them, or use dtype='f32'")
        return rows.astype(np.float16), None
    scales = np.abs(rows).max(axis=1) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(rows / scales[:, None]).astype(np.int8), scales


def decode(rows: NDArray[Any], scales: Floats | None) -> Floats:
    """Stored rows as f32; the rows themselves if they are that."""
    if scales is not None:
        found: Floats = rows.astype(np.float32)
        found *= scales[..., None]
    elif rows.dtype == np.float32 or rows.size < FEW:
        found = rows.astype(np.float32, copy=False)
    else:
        # Three times as fast as NumPy's conversion: shift exponent and fraction into place, then correct the bias.
        bits = rows.view(np.int16).astype(np.int32)
        bits <<= 13
        bits &= np.int32(-0x70002000)  # the sign, and 15 bits below three copies of it
        found = bits.view(np.float32)
        found *= np.float32(2.0**112)
    return found
