"""The face has NumPy's names, and each makes the message that it says."""

import inspect
from typing import Any

import numpy as np
import pytest

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import OPS
from callboard.core.operand import Placeholder
from callboard.kernel.fft import Fft, FftPlanMany, FftPlanManyInPlace, FftWithCallback, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.fft.api import FftApi

METHODS = {name: method for name, method in inspect.getmembers(FftApi, inspect.isfunction) if not name.startswith("_")}
MESSAGES = [cls for tag, cls in OPS.items() if tag.startswith("fft.")]
NUMPYS = ["fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn", "irfftn"]


def array(name: str, *shape: int) -> Any:
    return Placeholder(layout_of(DTYPES[name], shape))


C, R, H = array("c64", 4, 6, 8), array("f32", 4, 6, 8), array("f16", 4, 6, 8, 2)
REAL_HALF = array("f16", 4, 6)


@pytest.mark.parametrize("name", NUMPYS)
def test_names_and_defaults_are_numpys(name: str) -> None:
    """But for those where NumPy pads or cuts, and where the host's arrays are meant."""
    ours, numpys = inspect.signature(METHODS[name]).parameters, inspect.signature(getattr(np.fft, name)).parameters
    for parameter in ("axis", "axes"):
        assert (parameter in ours) == (parameter in numpys)
        if parameter in ours:
            assert ours[parameter].default == numpys[parameter].default
    assert ours["norm"].default == "backward", "what NumPy's None means"


def test_there_are_no_other_methods() -> None:
    assert set(METHODS) == {*NUMPYS, "plan_many", "plan_many_in_place", "with_callback"}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda f: f.fft(C), Fft(x=C, axes=(2,))),
        (lambda f: f.fft(C, axis=0, norm="ortho", out=C), Fft(x=C, axes=(0,), norm="ortho", out=C)),
        (lambda f: f.ifft(C, axis=-2), Fft(x=C, axes=(1,), direction="inverse")),
        (lambda f: f.fft2(C), Fft(x=C, axes=(1, 2))),
        (lambda f: f.ifft2(C, axes=(0, 1)), Fft(x=C, axes=(0, 1), direction="inverse")),
        (lambda f: f.fftn(C), Fft(x=C, axes=(0, 1, 2))),
        (lambda f: f.fftn(H), Fft(x=H, axes=(0, 1, 2))),
        (lambda f: f.ifftn(C, axes=[2, 0]), Fft(x=C, axes=(2, 0), direction="inverse")),
        (lambda f: f.rfft(R, norm="forward"), Rfft(x=R, axes=(2,), norm="forward")),
        (lambda f: f.rfft2(R), Rfft(x=R, axes=(1, 2))),
        (lambda f: f.rfftn(R), Rfft(x=R, axes=(0, 1, 2))),
        (lambda f: f.rfftn(REAL_HALF), Rfft(x=REAL_HALF, axes=(0, 1))),
        (lambda f: f.irfft(C, n=15), Irfft(x=C, axes=(2,), n=15)),
        (lambda f: f.irfft(C, axis=1, overwrite_x=True), IrfftOverwrite(x=C, axes=(1,))),
        (lambda f: f.irfft2(C), Irfft(x=C, axes=(1, 2))),
        (lambda f: f.irfftn(H), Irfft(x=H, axes=(0, 1, 2))),
        (lambda f: f.irfftn(C, overwrite_x=True), IrfftOverwrite(x=C, axes=(0, 1, 2))),
        (
            lambda f: f.plan_many(
                C, C, "C2C", [8], batch=2, in_embed=[9], in_stride=2, in_dist=20, direction="inverse"
            ),
            FftPlanMany(
                x=C, out=C, kind="C2C", dims=(8,), batch=2, in_embed=(9,), in_stride=2, in_dist=20, direction="inverse"
            ),
        ),
        (
            lambda f: f.plan_many(C, C, "C2C", [8], out_embed=[9], out_stride=2, out_dist=20, norm="ortho"),
            FftPlanMany(x=C, out=C, kind="C2C", dims=(8,), out_embed=(9,), out_stride=2, out_dist=20, norm="ortho"),
        ),
        (
            lambda f: f.plan_many_in_place(R, "R2C", [6, 6], batch=3, norm="ortho"),
            FftPlanManyInPlace(x=R, kind="R2C", dims=(6, 6), batch=3, norm="ortho"),
        ),
        (
            lambda f: f.with_callback(R, kind="R2C", load="l", store="s", load_data=C, store_data=R, axes=[0], out=C),
            FftWithCallback(
                x=R, kind="R2C", load="l", store="s", load_data=C, store_data=R, axes=(0,), out=C, direction="forward"
            ),
        ),
        (
            lambda f: f.with_callback(C, kind="C2R", load="l", n=15, norm="forward"),
            FftWithCallback(x=C, kind="C2R", load="l", n=15, norm="forward", direction="inverse"),
        ),
    ],
)
def test_each_makes_its_message(call: Any, message: Any) -> None:
    submitted: list[Any] = []
    assert call(FftApi(lambda op: submitted.append(op) or "answer", np.asarray)) == "answer"
    assert submitted == [message]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_the_docstring_names_every_field(cls: Any) -> None:
    text = inspect.getdoc(cls) or ""
    for field in cls.__struct_fields__:
        assert field in text


def test_a_view_that_begins_between_complex_numbers_is_noted() -> None:
    """What decides about a copy is part of the signature, by which plans are kept."""

    class At(Placeholder):
        __slots__ = ("offset",)

        def __init__(self, name: str, shape: tuple[int, ...], offset: int) -> None:
            super().__init__(layout_of(DTYPES[name], shape))
            self.offset = offset

    for name, unit in (("f16", 4), ("f32", 8), ("f64", 16)):
        assert Rfft(x=At(name, (8,), 3 * unit)).aligned
        assert not Rfft(x=At(name, (8,), 3 * unit + unit // 2)).aligned
    assert not Irfft(x=At("c64", (8,), 8), out=At("f32", (14,), 4)).aligned
    assert not FftPlanMany(x=At("f32", (8,), 4), out=array("c64", 5), kind="R2C", dims=(8,)).aligned
    again = Rfft(x=array("f32", 8), aligned=False)  # in the context host, where the signature has told it
    assert not again.aligned
    assert not again.transform().aligned


def test_axes_count_from_either_end() -> None:
    """Equal transforms have equal signatures."""
    assert Fft(x=C, axes=(-1, 0)) == Fft(x=C, axes=(2, -3))
    assert Fft(x=H, axes=(-1,)) == Fft(x=H, axes=(2,))
    with pytest.raises(ShapeError, match=r"axes is \(-2, -1\) and x has 1 axes: there is no axis -2"):  # as given
        Fft(x=array("c64", 4), axes=(-2, -1)).infer()
    with pytest.raises(TypeError, match=r"axes is 0; pass a sequence, \(0,\)"):
        FftApi(lambda op: op, np.asarray).fftn(C, axes=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dims is 8; pass a sequence, \(8,\)"):
        FftApi(lambda op: op, np.asarray).plan_many(array("c64", 8), array("c64", 8), "C2C", 8)  # type: ignore[arg-type]
    assert Fft(x=C, axes=(np.int64(-1), np.int64(0))) == Fft(x=C, axes=(2, 0))
    with pytest.raises(ShapeError, match="no axis 3"):
        Fft(x=H, axes=(3,)).infer()


def test_points_and_scale() -> None:
    transform = Irfft(x=array("c64", 4, 5), axes=(0, 1), n=9).transform()
    assert transform.lengths == (4, 9)
    assert transform.points == 36
    assert transform.scale == 1 / 36
    assert Irfft(x=array("c64", 4, 5), norm="ortho").transform().scale == pytest.approx(8**-0.5)
    assert Irfft(x=array("c64", 4, 5), norm="forward").transform().scale == 1
    assert Rfft(x=R, norm="forward").transform().scale == 1 / 8
    assert Rfft(x=R).transform().scale == 1
