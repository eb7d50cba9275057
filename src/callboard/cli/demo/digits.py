"""The digits that the demo works on (``callboard/cli/data``, with their source)."""

import importlib.resources
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Digits", "load_digits"]


class Digits(NamedTuple):
    """Handwritten digits.

    Attributes:
        images: ``[1797, 64]`` f64, pixels of 8 x 8 pictures, row by row, 0 to 16.
        labels: ``[1797]`` u8, which digit it is.
    """

    images: "np.ndarray[Any, np.dtype[np.float64]]"
    labels: "np.ndarray[Any, np.dtype[np.uint8]]"


def load_digits() -> Digits:
    """Read the packaged archive."""
    source = importlib.resources.files("callboard.cli") / "data" / "digits.npz"
    with source.open("rb") as file, np.load(file) as archive:
        return Digits(archive["images"].astype(np.float64), archive["labels"])
