"""Batches: arrays side by side, cut by rows into the parts of the replicas."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Batch", "as_arrays", "copied", "in_micro_batches", "is_arrays", "part", "rows_of", "shares", "tokens_of"]

Batch = Any
"""Arrays whose first axis is that of the samples, in tuples or dicts: ``(x, y)``, ``{"ids": ids, ...}``."""


ARRAYS = "__array__", "__array_interface__", "__dlpack__", "typecode"
"""Attributes of which an array has one."""


Copy = Callable[[Any, Any], None]
"""``copy(target, source)`` of two arrays."""


def as_arrays(batch: Batch, *, copy: Copy | None = None) -> Batch:
    """The same batch with NumPy arrays in place of tensors and lists of numbers.

    A list of arrays or tensors, as a ``DataLoader`` gives them, is read as a tuple.

    Args:
        batch: The batch.
        copy: Copies each array into memory of its own: the caller may write its next batch where this one is. None:
            no copy is made.

    Raises:
        TypeError: It holds something that is no array of numbers; the text says where.
    """
    return _mapped(batch, "batch", copy)


def is_arrays(value: Any) -> bool:
    """It is an array, or what may hold some."""
    return isinstance(value, tuple | list | dict) or any(hasattr(value, name) for name in ARRAYS)


def _mapped(value: Any, where: str, copy: Copy | None) -> Any:
    if isinstance(value, tuple) or _is_row(value):
        return tuple(_mapped(item, f"{where}[{at}]", copy) for at, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _mapped(item, f"{where}[{key!r}]", copy) for key, item in value.items()}
    if hasattr(value, "detach"):  # a tensor of torch
        value, copy = _of_tensor(value.detach(), where, copy)
    if np.ma.isMaskedArray(value):
        raise TypeError(f"{where} is a masked array, whose mask would be lost; fill it first: {where}.filled(0)")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as e:  # lists of different lengths, or an object with items of its own
        given = f"a {type(value).__name__}, which is not an array of numbers ({e})"
        raise TypeError(f"{where} is {given}; pass arrays of numbers, (inputs, targets) for example") from e
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{where} is {value!r:.60}, of dtype {array.dtype}; pass arrays of numbers")
    if not array.ndim:
        raise TypeError(f"{where} is the single number {value!r:.60}; an array of a batch has an axis for the samples")
    own = array.astype(array.dtype.newbyteorder("="), copy=False)
    if copy is None or own is not array:
        return own
    target = np.empty_like(own)
    copy(target, own)
    return target


def _is_row(value: Any) -> bool:
    """A list of arrays, as a ``DataLoader`` gives them side by side, and not of numbers."""
    return isinstance(value, list) and any(getattr(item, "shape", ()) for item in value)


def _of_tensor(tensor: Any, where: str, copy: Copy | None) -> tuple[Any, Copy | None]:
    """An array of it, and how it is still to be copied."""
    import torch

    dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype  # NumPy has no bf16
    try:
        lent = tensor.is_shared()  # memory of a loader's workers, which have little of it
        own = tensor.to("cpu", dtype, copy=lent and tensor.device.type == "cpu")
        return own.numpy(), None if own is not tensor else copy
    except (TypeError, RuntimeError) as error:  # a sparse one, one without data, ...
        raise TypeError(f"{where} is a tensor that no array can be made of: {error}") from error


def rows_of(batch: Batch) -> int:
    """The number of samples.

    Raises:
        ValueError: No array, or arrays with different numbers of rows.
    """
    rows = {len(array) for array in _leaves(batch)}
    if len(rows) != 1:
        counts = " and ".join(map(str, sorted(rows))) or "no"
        raise ValueError(f"the batch has arrays of {counts} rows; all have one row for each sample")
    return rows.pop()


def tokens_of(batch: Batch) -> int | None:
    """The number of tokens: elements of the first array, if it is of whole numbers and has more than one axis."""
    first = next(_leaves(batch))
    return int(first.size) if first.dtype.kind in "iu" and first.ndim > 1 else None


def part(batch: Batch, rows: Any) -> Batch:
    """The samples of ``rows``: a slice, or an array of their numbers."""
    return _each(batch, lambda array: array[rows])


def in_micro_batches(batch: Batch, size: int | None) -> Iterator[tuple[Batch, int]]:
    """Parts of so many samples, in order, each with its number; None: one. The last one may be smaller."""
    rows = rows_of(batch)
    size = size or max(1, rows)
    for start in range(0, rows, size):
        yield part(batch, slice(start, start + size)), min(size, rows - start)


def _each(batch: Batch, function: Callable[[Any], Any]) -> Batch:
    if isinstance(batch, tuple):
        return tuple(_each(item, function) for item in batch)
    if isinstance(batch, dict):
        return {key: _each(item, function) for key, item in batch.items()}
    return function(batch)


def copied(array: Any, device: Any, dtype: Any) -> Any:
    """A tensor of the device in memory of torch's own.

    The array's memory is valid until the call returns, and some products round by the alignment of their operands.

    Args:
        array: Of NumPy.
        device: A torch device.
        dtype: To convert to; None: the array's.
    """
    import torch

    given = torch.from_numpy(array if array.flags.writeable else array.copy())
    return given.to(device, dtype, copy=True)


def shares(rows: int, parts: int) -> list[slice]:
    """Consecutive rows for each part; the first ones have one more where it does not divide."""
    least, more = divmod(rows, parts)
    starts = [at * least + min(at, more) for at in range(parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(starts)]


def _leaves(batch: Batch) -> Iterator[Any]:
    if isinstance(batch, tuple | dict):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from _leaves(item)
    else:
        yield batch
