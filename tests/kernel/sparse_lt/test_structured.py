"""Structured matrices: pattern, bytes, and matrices that are rejected before anything is sent."""

from typing import Any

import numpy as np
import pytest

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import outputs_of
from callboard.core.operand import Placeholder
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Prune, StructuredRef
from callboard.kernel.sparse_lt.structured import FACTORS, compressed_bytes, group_of, tile_choices


def placed(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


@pytest.mark.parametrize("dtype, wanted", [("f16", 90), ("f32", 2)])
def test_the_choices_of_a_tile(dtype: str, wanted: int) -> None:
    group = group_of(DTYPES[dtype])
    tiles = np.array(tile_choices(group)).reshape(-1, group.size, group.size)
    assert len({tile.tobytes() for tile in tiles}) == wanted
    assert (tiles.sum(1) == group.kept).all()
    assert (tiles.sum(2) == group.kept).all()


@pytest.mark.parametrize("dtype", FACTORS, ids=str)
def test_a_compressed_matrix_is_smaller(dtype: Any) -> None:
    whole = 4096 * 4096 * dtype.itemsize
    assert compressed_bytes(dtype, (4096, 4096)) / whole == {1: 5 / 8, 2: 9 / 16, 4: 5 / 8}[dtype.itemsize]
    assert compressed_bytes(dtype, (3, 64, 128)) == 3 * compressed_bytes(dtype, (64, 128))
    assert compressed_bytes(dtype, (0, 64)) == 0


@pytest.mark.parametrize("op", [Prune, Check, Compress])
@pytest.mark.parametrize(
    "operand, says",
    [
        (placed("f64", (8, 8)), r"x is f64\[8, 8\]; its dtype must be one of f16, bf16, f32, i8, f8_e4m3, f8_e5m2"),
        (placed("f16", (8,)), r"x is f16\[8\]; it must have 2 axes, or 3 for a batch"),
        (
            placed("f16", (8, 6)),
            r"x is f16\[8, 6\]: rows of f16 must be a positive multiple of 4 long; pad them with 0",
        ),
        (
            placed("f32", (8, 7)),
            r"x is f32\[8, 7\]: rows of f32 must be a positive multiple of 2 long; pad them with 0",
        ),
        (placed("f16", (8, 0)), r"x is f16\[8, 0\]: rows of f16 must be a positive multiple of 4 long"),
        (placed("f16", (8, 8), (1, 8)), r"x is f16\[8, 8\], strides \(1, 8\), column-major; .* pass dev.copy\(x\)"),
    ],
)
def test_matrices_without_groups_are_refused(op: Any, operand: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        outputs_of(op(x=operand))


def test_tiles_want_whole_rows_of_tiles() -> None:
    assert outputs_of(Prune(x=placed("f16", (6, 8))))["out"].shape == (6, 8)
    with pytest.raises(ShapeError, match=r"tiles are 4 x 4; pad its rows, or take algorithm 'strip'"):
        outputs_of(Prune(x=placed("f16", (6, 8)), algorithm="tile"))


def test_a_setting_that_is_none_names_itself() -> None:
    with pytest.raises(TypeError, match="StructuredRef: dtype = 'f64': use one of 'f16', 'bf16'"):
        StructuredRef(placed("u8", (8,)), "f64", (8, 8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="algorithm = 'l1'"):
        Prune(x=placed("f16", (8, 8)), algorithm="l1")  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(8,), (1, 2, 3, 4)])
def test_the_shape_of_a_structured_matrix_has_two_or_three_extents(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"a\.shape is .*; it must be \(outer, k\) or \(batch, outer, k\)"):
        outputs_of(Decompress(a=StructuredRef(placed("u8", (8,)), "f16", shape)))
