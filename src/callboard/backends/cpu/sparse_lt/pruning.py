"""Selection of the elements to keep: the largest of each group, or the best pattern of each tile."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.kernel.sparse_lt import Check, Prune
from callboard.kernel.sparse_lt.structured import Group, group_of, tile_choices

__all__ = ["check", "is_structured", "prune", "strips", "tiles"]

Array = np.ndarray[Any, Any]
Plan = Callable[..., None]

LARGE = 1e300
"""The stand-in for an infinite magnitude in sums of magnitudes."""


@plans(Prune)
def prune(op: Prune) -> Plan:
    """``plan(x, out)``."""
    view, write = viewer(op.x.layout), viewer(op.infer()["out"] if op.out is None else op.out.layout)
    group, choose = group_of(op.x.dtype), strips if op.algorithm == "strip" else tiles

    def work(x: int, out: int) -> None:
        array = view(x)
        write(out)[...] = np.where(choose(array, group), array, array.dtype.type(0))

    return work


@plans(Check)
def check(op: Check) -> Plan:
    """``plan(x, out)``."""
    view, write, group = viewer(op.x.layout), viewer(layout_of(DTYPES["i32"], ())), group_of(op.x.dtype)

    def work(x: int, out: int) -> None:
        write(out)[...] = not is_structured(view(x), group)

    return work


def magnitudes(x: Array) -> Array:
    """Return the exact magnitude of each element; NaN counts as infinite, since it is not a small number."""
    wide: Array = np.abs(x.astype(np.float64))
    wide[np.isnan(wide)] = np.inf
    return wide


def strips(x: Array, group: Group) -> Array:
    """Mask of the largest magnitudes of each group in a row; the first of equal ones."""
    grouped = magnitudes(x).reshape(_grouped(x, group))
    order = np.argsort(-grouped, axis=-1, kind="stable")[..., : group.kept]
    mask = np.zeros(grouped.shape, np.bool_)
    np.put_along_axis(mask, order, True, axis=-1)
    return mask.reshape(x.shape)


def tiles(x: Array, group: Group) -> Array:
    """Mask with the largest sum of magnitudes that has the given count in each row and column of a tile."""
    size = group.size
    *batch, rows, cols = x.shape
    tiled = magnitudes(x).reshape(*batch, rows // size, size, cols // size, size).swapaxes(-2, -3)
    tiled = np.minimum(tiled, LARGE)  # sums stay finite, and so comparable
    choices = np.array(tile_choices(group))
    best = np.argmax(tiled.reshape(tiled.size // (size * size), size * size) @ choices.T.astype(np.float64), axis=-1)
    mask: Array = choices[best].reshape(tiled.shape)
    return mask.swapaxes(-2, -3).reshape(x.shape)


def is_structured(x: Array, group: Group) -> bool:
    """True if no group of a row exceeds its number of nonzeros; NaN is nonzero, -0.0 is zero."""
    counts = np.count_nonzero(x.reshape(_grouped(x, group)), axis=-1)
    return bool((counts <= group.kept).all())


def _grouped(x: Array, group: Group) -> tuple[int, ...]:
    return (*x.shape[:-1], x.shape[-1] // group.size, group.size)
