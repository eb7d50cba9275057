"""``callboard cutlass prebuild --conv``: the templates that a call of the convolution asks for, without a GPU."""

import pytest

import callboard as cb
from callboard.backends.cuda.cutlass.convolutions.text import conv_text
from callboard.backends.cuda.cutlass.convolutions.tiles import tilings_of_conv
from callboard.cli import main
from callboard.cli.serving.prebuild import KINDS, convolution, product_of
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Conv, ConvKind

STEPS = ["bias", "scale", "gate=silu", "residual", "quantize=i8"]


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(3)
def test_it_is_the_template_of_a_call_of_any_extent_and_names(kind: ConvKind) -> None:
    made = convolution(product_of("f16", STEPS, None, "f32", "bf16", ""), kind)
    tree = cb.EpilogueVisitorTree().bias("shift").scale("t").gate("g", "silu").residual().quantize("i8")
    x, w, y = (4, 9, 8, 16), (32, 3, 1, 16), (4, 9, 8, 32)
    a, b, result = {"fprop": (x, w, y), "dgrad": (y, w, x), "wgrad": (y, x, w)}[kind]
    call = Conv(
        a=array("f16", *a),
        b=array("f16", *b),
        c=array("f32", *result),
        beta=1.0,
        epilogue=tree.nodes,
        inputs=tuple(array("bf16", *shape) for shape in (result[-1:], (), result, result)),
        kind=kind,
        padding=(1, 0),
        extent=None if kind == "fprop" else result[1:3],
        engine="cutlass",
    )
    call.infer()
    for tiling in tilings_of_conv(kind):
        assert conv_text(made, made.problem(), tiling) == conv_text(call, call.problem(), tiling)


def test_each_tiling_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cutlass", "prebuild", "bf16", "bias", "relu", "--conv", "fprop", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(tilings_of_conv("fprop"))
    for line, tiling in zip(lines, tilings_of_conv("fprop"), strict=True):
        assert line.endswith(f"fprop of bf16 -> bf16, {tiling}, bias relu")


@pytest.mark.parametrize(
    "given, says",
    [
        (["f8_e4m3", "--conv", "fprop"], "a is f8_e4m3; the templates of convolutions have f16, bf16"),
        (["f16", "scale=row", "--conv", "wgrad"], "a number for each row, which wgrad's template does not have"),
        (["f16", "--conv", "dgrad", "--groups"], "--conv goes with none of --groups, --transposed, --scales"),
    ],
)
@pytest.mark.few(3)
def test_what_cannot_be_compiled_is_named(given: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cutlass", "prebuild", *given]) == 2
    assert says in capsys.readouterr().err
