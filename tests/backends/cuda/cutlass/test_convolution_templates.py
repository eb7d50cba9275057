"""Templates of convolutions without a GPU: their text, and the convolutions that have none."""

import ctypes
from pathlib import Path
from typing import Any, get_args

import pytest

import callboard as cb
from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.convolutions.flat import flattened, why_no_conv
from callboard.backends.cuda.cutlass.convolutions.text import ConvCall, conv_text
from callboard.backends.cuda.cutlass.convolutions.tiles import tilings_of_conv
from callboard.backends.cuda.cutlass.rules import refuses
from callboard.backends.cuda.cutlass.templates import Call
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Conv, ConvKind, ExplainConv

Tree = cb.EpilogueVisitorTree
KINDS: tuple[ConvKind, ...] = get_args(ConvKind)


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def message(
    kind: ConvKind = "fprop",
    tree: Any = None,
    *inputs: Placeholder,
    dtype: str = "bf16",
    images: tuple[int, ...] = (2, 9, 8, 16),
    filters: tuple[int, ...] = (24, 3, 2, 16),
    **settings: Any,
) -> Conv:
    """A convolution of a kind; strides, padding and dilation by name."""
    moves = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 2), **settings}
    spatial = (
        (h + 2 * pad - far * (r - 1) - 1) // step + 1
        for h, r, step, pad, far in zip(
            images[1:3], filters[1:3], moves["stride"], moves["padding"], moves["dilation"], strict=True
        )
    )
    y = (images[0], *spatial, filters[0])
    a, b = {"fprop": (images, filters), "dgrad": (y, filters), "wgrad": (y, images)}[kind]
    extent = {"fprop": None, "dgrad": images[1:3], "wgrad": filters[1:3]}[kind]
    nodes = () if tree is None else tree.nodes
    given: dict[str, Any] = {"a": array(dtype, *a), "b": array(dtype, *b), "kind": kind, "extent": extent, **moves}
    return Conv(**given, epilogue=nodes, inputs=inputs, engine="cutlass")


def text_of(op: Conv, at: int = 0) -> str:
    return conv_text(op, op.problem(), tilings_of_conv(op.kind)[at])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_a_text_serves_all_extents_and_movements_of_a_kind(kind: ConvKind) -> None:
    stride = (1, 1) if kind == "dgrad" else (2, 3)
    other = message(
        kind, images=(1, 30, 31, 64), filters=(64, 5, 5, 64), padding=(2, 2), dilation=(1, 1), stride=stride
    )
    assert text_of(other) == text_of(message(kind))
    assert f"Operator::k{kind.capitalize()};" in text_of(other)
    tilings = tilings_of_conv(kind)
    assert len({text_of(other, at) for at in range(len(tilings))}) == len(tilings)


def test_the_epilogue_is_that_of_the_flat_product() -> None:
    arrays = array("bf16", 24), array("bf16", 2, 9, 6, 24)
    text = text_of(message("fprop", Tree().bias().residual(), *arrays))
    assert "fusion::Sm90RowBroadcast<0, TileOfBlock, cutlass::bfloat16_t" in text
    assert "using ElementC = cutlass::bfloat16_t;" in text
    assert "geometry_of(p)}" in text
    assert "PersistentScheduler" in text
    assert "StreamKScheduler" in text_of(message("wgrad"))


def test_gradients_of_filters_are_a_product_for_each_tap() -> None:
    op = message("wgrad")
    flat = flattened(op, op.problem())
    assert flat.out is not None
    assert flat.out.shape == (6, 24, 16)
    assert flat.out.strides == (16, 6 * 16, 1)
    assert flat.problem().stacks == 6


@pytest.mark.parametrize(
    "op, why",
    [
        (message(dtype="f32"), "a is f32; the templates of convolutions have f16, bf16"),
        (message("dgrad", stride=(1, 2)), r"stride is (1, 2); the template of dgrad has stride 1: leave engine out"),
        (message(stride=(9, 1)), "stride is (9, 1); templates have strides up to 8"),
        (message(images=(2, 9, 8, 12), filters=(24, 3, 2, 12)), "there are 12 channels; templates have multiples of 8"),
        (message("dgrad", filters=(12, 3, 2, 16)), "there are 12 filters; templates have multiples of 8: pad them"),
        (message(filters=(12, 3, 2, 16)), "there are 12 filters; templates have multiples of 8: pad them, or leave"),
        (message(padding=(128, 0)), "padding is 128 for filters that span 3 pixels; templates have paddings below 128"),
        (
            message(padding=(0, 50), dilation=(1, 180), images=(1, 9, 99, 16)),
            "at most 129 beyond the padding",
        ),
        (
            message("wgrad", Tree().scale("s", per="row"), array("bf16", 24, 3, 2)),
            "a number for each row, which wgrad's template does not have",
        ),
        (message("wgrad", images=(1, 1, 3, 16), padding=(1, 0)), "one pixel; the template of wgrad has more"),
        (message(images=(0, 9, 8, 16)), "there is nothing to compute; leave engine out"),
    ],
)
@pytest.mark.few(11)
def test_there_is_no_template_for_a_reason(op: Conv, why: str) -> None:
    assert why in (why_no_conv(op, op.problem()) or "")
    assert f"engine is 'cutlass': {why_no_conv(op, op.problem())}" == refuses(op)
    fields = {name: getattr(op, name) for name in Conv.__struct_fields__}
    assert refuses(ExplainConv(**fields)) == refuses(op)
    assert refuses(ExplainConv(**fields | {"engine": "auto"})) is None


def test_a_result_without_a_common_distance_of_rows_is_named() -> None:
    gaps = Placeholder(layout_of(DTYPES["bf16"], (2, 9, 6, 24), (9 * 8 * 24, 8 * 24, 24, 1)))
    assert "whose rows have no common distance; pass dev.copy(out)" in (refuses(message(out=gaps)) or "")


def test_a_convolution_at_the_limits_has_a_template() -> None:
    for op in (
        message(stride=(8, 8)),
        message(padding=(127, 0), images=(2, 9, 8, 8), filters=(8, 1, 2, 8)),
        message(padding=(0, 60), dilation=(1, 188), images=(1, 9, 100, 16)),
        message("dgrad", padding=(2, 1)),
    ):
        assert why_no_conv(op, op.problem()) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_nvcc_takes_the_whole_template(kind: ConvKind, tmp_path: Path) -> None:
    """Forty seconds of an idle core for each."""
    pytest.importorskip("cutlass_library", reason="the extra cutlass is not installed")
    nvcc.toolchain.cache_clear()
    try:
        nvcc.toolchain()
    except BackendUnavailable as e:
        pytest.skip(str(e))
    code = nvcc.library_of(nvcc.built(text_of(message(kind, Tree().relu())), "90a", KernelCache(tmp_path)))
    assert code.callboard_launch
    assert code.callboard_workspace
    assert ctypes.sizeof(ConvCall) == ctypes.sizeof(Call) + 14 * 4
