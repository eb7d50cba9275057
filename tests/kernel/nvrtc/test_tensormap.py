import pytest
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.kernel.nvrtc.tensormap import DATA_TYPES, check_map, tensor_map

MADE_WRONG = {
    "six axes": ({"box": (1,) * 6}, "a tensor map has one to five axes"),
    "no axes": ({"box": ()}, "a tensor map has one to five axes"),
    "a box too large": ({"box": (257, 16)}, r"box is \[257, 16\]; each must lie between 1 and 256"),
    "an empty box": ({"box": (0, 16)}, "box is"),
    "a step too large": ({"box": (8, 16), "steps": (9, 1)}, r"steps is \[9, 1\]; each must lie between 1 and 8"),
    "steps of other axes": ({"box": (8, 16), "steps": (1,)}, r"steps is \[1\]; box has 2 axes"),
    "a swizzle": ({"box": (8, 16), "swizzle": "256B"}, "swizzle is '256B'; use one of none, 32B, 64B, 128B"),
    "interleaved with two axes": ({"box": (8, 16), "interleave": "16B"}, "for arrays of three axes and more"),
    "interleaved by 32": ({"box": (8, 8, 16), "interleave": "32B"}, "interleave 32B needs swizzle 32B, not none"),
}


@pytest.mark.parametrize("case", MADE_WRONG)
def test_a_map_that_no_array_can_have(case: str) -> None:
    fields, says = MADE_WRONG[case]
    with pytest.raises(cb.ShapeError, match=says):
        tensor_map(**fields)  # type: ignore[arg-type]


UNFIT = {
    "another number of axes": ("f16", (64,), {"box": (8, 8)}, 0, "of 2 axes"),
    "an extent of 0": ("f16", (0, 64), {"box": (8, 8)}, 0, "axis 0 has 0"),
    "a stride": ("f16", (64, 9), {"box": (8, 8)}, 0, r"that of axis 0 has 18 \(pad the last axis\)"),
    "an offset": ("f16", (64, 64), {"box": (8, 8)}, 8, "multiple of 16 bytes; this view is 8 off"),
    "an offset, interleaved": (
        "f16",
        (8, 64, 64),
        {"box": (1, 8, 8), "interleave": "32B", "swizzle": "32B"},
        16,
        "of 32",
    ),
    "a box of odd bytes": (
        "f16",
        (64, 64),
        {"box": (8, 4)},
        0,
        "has 8 bytes along the last axis of its box; a multiple",
    ),
    "a box beyond its swizzle": (
        "f16",
        (64, 64),
        {"box": (8, 64), "swizzle": "64B"},
        0,
        "swizzle 64B takes at most 64",
    ),
    "nan for integers": ("i32", (64, 64), {"box": (8, 8), "fill": "nan"}, 0, "has fill nan"),
    "a dtype": ("c128", (64, 64), {"box": (8, 8)}, 0, "takes no c128"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_map_that_this_array_cannot_have(case: str) -> None:
    dtype, shape, fields, offset, says = UNFIT[case]
    with pytest.raises(cb.ShapeError, match=says):
        check_map("f", "a", layout_of(DTYPES[dtype], shape), tensor_map(**fields), offset)  # type: ignore[arg-type]


FIT = st.integers(1, 4).map(lambda n: 16 * n)
"""What keeps the rules, whatever the dtype; any number almost never does."""


@given(
    dtype=st.sampled_from(sorted(DATA_TYPES)),
    shape=st.lists(st.integers(1, 70) | FIT, min_size=1, max_size=5),
    data=st.data(),
    swizzle=st.sampled_from(["none", "32B", "64B", "128B"]),
    offset=st.integers(0, 64) | FIT,
)
def test_what_is_taken_keeps_every_rule(
    dtype: str, shape: list[int], data: st.DataObject, swizzle: str, offset: int
) -> None:
    """The rules of the driver, written another way."""
    box = data.draw(st.lists(st.integers(1, 80) | FIT, min_size=len(shape), max_size=len(shape)))
    layout = layout_of(DTYPES[dtype], tuple(shape))
    item = layout.dtype.itemsize
    strides = [step * item for step in layout.strides]
    right = (
        offset % 16 == 0
        and all(stride % 16 == 0 for stride in strides[:-1])
        and box[-1] * item % 16 == 0
        and (swizzle == "none" or box[-1] * item <= int(swizzle[:-1]))
    )
    one = tensor_map(box, swizzle=swizzle)  # type: ignore[arg-type]
    if right:
        check_map("f", "a", layout, one, offset)
    else:
        with pytest.raises(cb.ShapeError, match="f: a is"):
            check_map("f", "a", layout, one, offset)


async def test_a_launch_is_refused_before_it_is_sent() -> None:
    @cb.kernel("in a: f16[m, k], out b: f16[m, k]", cuda="text", tensor_maps={"a": cb.tensor_map((8, 8))})
    def body(a: object, b: object) -> None: ...

    import numpy as np

    async with cb.device("cpu", standby=None) as dev:
        await body(dev.put(np.ones((16, 16), "f2")))
        with pytest.raises(cb.ShapeError, match=r"body: a is f16.* \(pad the last axis\)"):
            body(dev.put(np.ones((16, 9), "f2")))
    with pytest.raises(ValueError, match="tensor_maps: no array c is declared; there are a, b"):
        cb.kernel("in a: f16[n], out b: f16[n]", cuda="", tensor_maps={"c": cb.tensor_map(8)})(body.body)
    with pytest.raises(ValueError, match="tensor_maps: a has 1 axes, the box"):
        cb.kernel("in a: f16[n], out b: f16[n]", cuda="", tensor_maps={"a": cb.tensor_map((8, 8))})(body.body)
