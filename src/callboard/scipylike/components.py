"""``scipy.ndimage.label``: the connected components of an image, by hooking and pointer jumping.

Each pixel has a parent of a smaller place in its component. A pass hooks the parents of pixels to the smallest
grandparent around these, and halves the paths to the roots (Shiloach and Vishkin, *An O(log n) parallel connectivity
algorithm*, 1982; Zhang, Azad and Hu, *FastSV*, 2020), until nothing changes: a few passes, whatever the shapes.
"""

import functools
from typing import Any

import numpy

from callboard.numpylike.binding import Array, dtype_of
from callboard.scipylike.filtering import host_values
from callboard.scipylike.table import function

__all__: list[str] = []


@function("ndimage")
def label(np: Any, input: Array, structure: Any = None, output: Any = None) -> Any:
    """Numbers of the connected components of what is not 0, in the order of their first pixels, and how many there are.

    It looks at an outcome of each pass, so it waits.

    Args:
        np: NumPy's names of the device.
        input: Real numbers or bools, any shape.
        structure: Which of the 3 × 3 × … pixels around one are its neighbours: a symmetric array of that shape, read on
            the host. None: those that share a side.
        output: Dtype of the result, i32 when None.

    Returns:
        The labels, 0 where the input is 0, and the number of components, an int.

    Raises:
        TypeError: The input is complex, or the device does not wait (asyncio).
        ValueError: ``structure`` has another shape, or is not symmetric.
    """
    if not input._port.services.blocking:
        raise TypeError(
            "its number of passes depends on the values, so it waits; use a device of cb.sync, or "
            "scipy.ndimage.label(await x.get())"
        )
    if input.dtype.is_complex:
        raise TypeError(f"input is {input.layout!r}; complex numbers have no components")
    places = _neighbours(input.ndim, structure)
    to = numpy.dtype("i4") if output is None else dtype_of(output)
    size = input.size
    inside = input != 0
    if not size or not input.ndim:
        return np.asarray(inside, dtype=to), int(inside.get().sum())
    flat = np.ravel(inside)
    own = np.arange(size)
    parents = np.where(flat, own, size)  # the root of the background is behind all pixels
    end = np.full((1,), size, dtype=own.dtype)
    while True:
        tree = np.concatenate([parents, end])
        grand = np.take(tree, parents)
        wide = np.pad(np.reshape(grand, input.shape), 1, constant_values=size)
        views = (wide[tuple(slice(k, k + n) for k, n in zip(place, input.shape, strict=True))] for place in places)
        best = np.where(flat, np.ravel(functools.reduce(np.minimum, views)), size)
        if not bool(np.any((best < grand) | (grand < parents))):
            break
        tree[np.where(best < grand, parents, size)] = best  # of several for one parent any: all are smaller than it
        least = np.minimum(tree[:size], best)
        parents = np.where(flat, np.minimum(least, np.take(tree, least)), size)
    numbers = np.cumsum(np.asarray(flat & (parents == own), dtype=own.dtype))
    found = np.where(flat, np.take(numbers, np.minimum(parents, size - 1)), 0)
    return np.asarray(np.reshape(found, input.shape), dtype=to), int(numbers[-1])


def _neighbours(ndim: int, structure: Any) -> list[tuple[int, ...]]:
    """The places of a pixel and its neighbours in the box around it."""
    shape = (3,) * ndim
    around = numpy.array(list(numpy.ndindex(shape)), dtype=int).reshape(3**ndim, ndim)
    if structure is None:
        chosen = numpy.abs(around - 1).sum(axis=1) <= 1
    else:
        given = host_values("structure", structure)
        if given.shape != shape:
            raise ValueError(f"structure has the shape {given.shape}; of an input of {ndim} axes it is {shape}")
        chosen = given.reshape(-1).astype(bool)
        if (chosen != chosen[::-1]).any():
            raise ValueError("structure is not symmetric around its centre: neighbours are neighbours of each other")
    centre = (1,) * ndim
    return [tuple(map(int, one)) for one in around[chosen]] + [centre] * (not chosen[len(chosen) // 2])
