"""Arrays of texts and bytes as two plain arrays: the bytes of all elements, and the length of each."""

from typing import Any

import numpy as np

__all__ = ["joined", "split"]

Array = np.ndarray[Any, Any]


def joined(array: Array) -> tuple[Array, bytes]:
    """The lengths of the elements in row-major order, those of texts as ``~length``, and their bytes, texts as UTF-8.

    Raises:
        TypeError: An element is neither; names its index.
        UnicodeEncodeError: A text has lone surrogates.
    """
    lengths = np.empty(array.size, np.int64)
    parts: list[bytes] = []
    for i, each in enumerate(array.ravel().tolist()):
        if isinstance(each, str):
            part = each.encode()
            lengths[i] = ~len(part)
        elif isinstance(each, bytes):
            part = each
            lengths[i] = len(part)
        else:
            index = ", ".join(map(str, np.unravel_index(i, array.shape)))
            raise TypeError(f"element [{index}] is {type(each).__qualname__}")
        parts.append(part)
    return lengths, b"".join(parts)


def split(lengths: Array, data: bytes, shape: tuple[int, ...]) -> Array:
    """The array again.

    Raises:
        ValueError: The lengths do not add up, or a text is not UTF-8.
    """
    sizes = np.where(lengths < 0, ~lengths, lengths)
    ends = np.cumsum(sizes)
    if sizes.sum() != len(data) or sizes.max(initial=0) > len(data):
        raise ValueError(f"the elements of an array of texts have {sizes.sum()} bytes, and {len(data)} came")
    found = np.empty(len(lengths), object)
    start = 0
    for i, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True)):
        part = data[start:end]
        found[i] = part.decode() if length < 0 else part
        start = end
    return found.reshape(shape)
