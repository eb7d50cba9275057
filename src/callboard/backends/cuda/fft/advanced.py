"""The advanced data layout of cuFFT: the location of the elements of a batch.

Axes of a transform are nested: the step of each is a multiple of the step of the next. The transforms of a batch are at
one distance from each other. A side that cannot be described this way, or that would be overwritten, is copied without
gaps to the plan's scratch memory.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from callboard.kernel.fft.transform import Side, Transform

__all__ = ["Advanced", "advanced"]


class Embedding(NamedTuple):
    """One side of a batch.

    Attributes:
        embed: Extents that contain a transform.
        stride: Between elements of the last axis.
        dist: Between transforms.
    """

    embed: list[int]
    stride: int
    dist: int


class Advanced(NamedTuple):
    """A batch as cuFFT takes it.

    Attributes:
        n: Points along each axis.
        batch: Number of transforms.
        src, out: Layouts of both sides.
        src_copy, out_copy: The side that stands for the operand in the scratch memory; None: the operand itself.
    """

    n: list[int]
    batch: int
    src: Embedding
    out: Embedding
    src_copy: Side | None
    out_copy: Side | None


def advanced(transform: Transform, overwrite: bool, padding: bool = False) -> Advanced:
    """Name the transform to cuFFT, with as few copies as can be.

    Args:
        transform: Transform of at least one element.
        overwrite: cuFFT may overwrite its input. It does so from complex to real along several axes.
        padding: cuFFT may write the gaps after the rows of a real output (:func:`padded`).
    """
    src, out = transform.src, transform.out
    like_out, like_src = dense(src, out, transform.axes), dense(out, src, transform.axes)
    overwrites = transform.kind == "C2R" and any(n > 1 for n in transform.lengths[:-1])
    choices: list[tuple[Side, Side]] = []
    if transform.aligned:
        direct = overwrite or not overwrites
        choices = [(src, out), (like_out, out), (src, like_src)] if direct else [(like_out, out)]
        if not padding and padded(transform):
            choices = [(src, like_src)] if direct else []
    for one, other in [*choices, (dense(src, src, transform.axes), like_src)]:
        for axes in orders(transform, one):
            found = _named(transform, axes, one, other)
            if found is not None:
                return found._replace(src_copy=None if one is src else one, out_copy=None if other is out else other)
    raise AssertionError(f"{transform}: arrays without gaps can be named")


def padded(transform: Transform) -> bool:
    """True if the rows of a real output are padded to the stride of complex ones, as in place.

    cuFFT works in the gaps after them then: a batch of (5, 7) points in rows of 8 has numbers there afterwards (cuFFT
    12.0, H100; of 880 layouts those and no others).
    """
    out, last = transform.out, transform.axes[-1]
    if transform.kind != "C2R" or out.strides[last] != 1:
        return False
    row = 2 * (out.shape[last] // 2 + 1)
    return any(out.shape[a] > 1 and abs(out.strides[a]) == row for a in range(len(out.shape)) if a != last)


def dense(side: Side, like: Side, axes: Sequence[int]) -> Side:
    """``side`` without gaps: the transformed axes last, the others in the order of ``like``'s memory."""
    batch = sorted((a for a in range(len(side.shape)) if a not in axes), key=lambda a: -abs(like.strides[a]))
    steps, step = [0] * len(side.shape), 1
    for axis in reversed([*batch, *axes]):
        steps[axis] = step
        step *= side.shape[axis]
    return side._replace(strides=tuple(steps))


def orders(transform: Transform, src: Side) -> Iterator[tuple[int, ...]]:
    """Yield the orders in which the axes may be transformed, that of the source's memory first.

    Axes of one point are left out. The last axis of a real transform stays the last: it is the halved one.
    """
    extents = dict(zip(transform.axes, transform.lengths, strict=True))
    fixed = () if transform.kind == "C2C" else transform.axes[-1:]
    free = [a for a in transform.axes if a not in fixed and extents[a] > 1]
    for order in itertools.permutations(sorted(free, key=lambda a: -abs(src.strides[a]))):
        yield (*order, *fixed) or transform.axes[-1:]


def _named(transform: Transform, axes: tuple[int, ...], src: Side, out: Side) -> Advanced | None:
    src_nest, out_nest = _nested(src, axes), _nested(out, axes)
    batch = _joined([a for a in range(len(src.shape)) if a not in transform.axes], src, out)
    if src_nest is None or out_nest is None or batch is None:
        return None
    extents = dict(zip(transform.axes, transform.lengths, strict=True))
    count, src_dist, out_dist = batch
    return Advanced(
        [extents[a] for a in axes],
        count,
        Embedding(*src_nest, src_dist),
        Embedding(*out_nest, out_dist),
        None,
        None,
    )


def _nested(side: Side, axes: tuple[int, ...]) -> tuple[list[int], int] | None:
    """``(embed, stride)`` of the transformed axes, None if they are not nested.

    cuFFT steps over no real halves: it takes them adjacent and without gaps.
    """
    last = axes[-1]
    stride = step = side.strides[last] if side.shape[last] > 1 else 1
    embed = [side.shape[last]]
    half = side.real.name == "f16" and not side.is_complex
    if stride < 1 or (half and (stride != 1 or not _without_gaps(side))):
        return None
    for axis, inner in zip(reversed(axes[:-1]), reversed(axes), strict=False):
        if side.shape[axis] == 1:
            extent = side.shape[inner]
        else:
            extent, rest = divmod(side.strides[axis], step)
            if rest or extent < side.shape[inner]:
                return None
        embed[0] = extent
        embed.insert(0, side.shape[axis])
        step *= extent
    return embed, stride


def _without_gaps(side: Side) -> bool:
    """Each element directly after another one, in whatever order of the axes, and none of them twice."""
    step = 1
    for stride, extent in sorted(zip(side.strides, side.shape, strict=True)):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _joined(axes: list[int], src: Side, out: Side) -> tuple[int, int, int] | None:
    """``(count, distance in src, distance in out)`` of the axes that are not transformed, None if they are several."""
    rest = sorted((a for a in axes if src.shape[a] > 1), key=lambda a: -abs(out.strides[a]))
    if not rest:
        return 1, math.prod(src.shape), math.prod(out.shape)
    for outer, inner in itertools.pairwise(rest):
        extent = src.shape[inner]
        if src.strides[outer] != src.strides[inner] * extent or out.strides[outer] != out.strides[inner] * extent:
            return None
    count = math.prod(src.shape[a] for a in rest)
    src_dist, out_dist = src.strides[rest[-1]], out.strides[rest[-1]]
    return (count, src_dist, out_dist) if src_dist > 0 and out_dist > 0 else None
