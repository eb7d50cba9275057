"""Norms, both ways, against PyTorch in f64: shapes, axes and strides are drawn; and against finite differences."""

from typing import Any

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, drawn, seeds, torch_of, wide
from dnn_views import by_differences, differentiated, placed, views
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import dnn
from callboard.testing.tolerances import assert_close

Array = np.ndarray[Any, Any]

dtypes = st.sampled_from(FLOATS)
row_shapes = st.sampled_from([(5, 24), (9,), (3, 2, 40), (1, 1), (4, 7), (2, 1030), (3, 776), (0, 8)])
image_shapes = st.sampled_from([(3, 6, 5), (2, 6, 4, 2), (4, 12, 1), (2, 6, 130), (1, 6, 3, 3, 2)])


def near(got: Any, want: Any, dtype: str, terms: int, x: Array | float = 1) -> None:
    """Within the rounding of sums of so many terms, of numbers as large as these."""
    scale = np.abs(np.asarray(want)).max(initial=0) + np.abs(np.asarray(x, np.float64)).max(initial=1)
    assert_close(got, want, dtype, max(terms, 2), kind="sum", scale=scale)


def parameters(session: Any, seed: int, count: int, dtype: str, mixed: bool) -> tuple[Array, Array, Any, Any]:
    """Scale and bias on both sides, of the array's dtype or of its sums'."""
    own = ("f64" if dtype == "f64" else "f32") if mixed else dtype
    scale, bias = drawn(seed + 1, (count,), own), drawn(seed + 2, (count,), own)
    return scale, bias, session.put(scale), session.put(bias)


@SHARED
@given(seed=seeds, shape=row_shapes, dtype=dtypes, view=views, mixed=st.booleans(), centred=st.booleans())
def test_over_the_last_axis(
    session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, mixed: bool, centred: bool
) -> None:
    functional = torch_of().nn.functional
    n = shape[-1]
    x, dy = drawn(seed, shape, dtype), drawn(seed + 3, shape, dtype)
    scale, bias, scale_ref, bias_ref = parameters(session, seed, n, dtype, mixed)
    given, grad = placed(session, x, view), placed(session, dy, view)
    if centred:
        want = differentiated(lambda *a: functional.layer_norm(a[0], (n,), a[1], a[2]), x, scale, bias, dy=dy)
        norm = session.submit(dnn.LayerNormTraining(x=given, scale=scale_ref, bias=bias_ref))
        back = session.submit(
            dnn.LayerNormBackward(dy=grad, x=given, mean=norm.mean, inverse=norm.inverse, scale=scale_ref)
        )
    else:
        want = differentiated(lambda *a: functional.rms_norm(a[0], (n,), a[1], 1e-5), x, scale, dy=dy)
        norm = session.submit(dnn.RmsNormTraining(x=given, scale=scale_ref))
        back = session.submit(dnn.RmsNormBackward(dy=grad, x=given, inverse=norm.inverse, scale=scale_ref))
    spread = np.abs(wide(session.get(norm.inverse))).max(initial=1)  # by it the rounding of the mean grows
    reach = np.abs(wide(dy)).max(initial=1) * np.abs(wide(scale)).max(initial=1) * spread**2 * 4
    near(session.get(norm.out), want[0], dtype, n, spread * 4)
    near(session.get(back.dx), want[1], dtype, n, reach)
    for got, wanted in zip(back[1:], want[2:], strict=True):
        near(session.get(got), wanted, DTYPES[got.dtype.name].name, x.size, np.sqrt(max(x.size // n, 1)) * spread * 4)


@SHARED
@given(
    seed=seeds, shape=image_shapes, dtype=dtypes, view=views, mixed=st.booleans(), last=st.booleans(),
    kind=st.sampled_from(["batch", "instance", "group"]),
)  # fmt: skip
def test_by_channels(
    session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, mixed: bool, last: bool, kind: str
) -> None:
    functional = torch_of().nn.functional
    x, dy = drawn(seed, shape, dtype), drawn(seed + 3, shape, dtype)
    scale, bias, scale_ref, bias_ref = parameters(session, seed, 6 if shape[1] == 6 else 12, dtype, mixed)
    groups: dict[str, int] = {"groups": 3} if kind == "group" else {}
    if kind == "instance" and np.prod(shape[2:]) == 1:
        return  # a single element has no deviation
    training, backward = {
        "batch": (dnn.BatchNormTraining, dnn.BatchNormBackward),
        "instance": (dnn.InstanceNormTraining, dnn.InstanceNormBackward),
        "group": (dnn.GroupNormTraining, dnn.GroupNormBackward),
    }[kind]
    functions = {
        "batch": lambda a, b, c: functional.batch_norm(a, None, None, b, c, True),
        "instance": lambda a, b, c: functional.instance_norm(a, weight=b, bias=c),
        "group": lambda a, b, c: functional.group_norm(a, 3, b, c),
    }
    want = differentiated(functions[kind], x, scale, bias, dy=dy)
    ordered = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a for a in (x, dy)]
    given, grad = (placed(session, a, view) for a in ordered)
    axis = -1 if last else 1
    norm = session.submit(training(x=given, scale=scale_ref, bias=bias_ref, axis=axis, **groups))
    back = session.submit(
        backward(dy=grad, x=given, mean=norm.mean, inverse=norm.inverse, scale=scale_ref, axis=axis, **groups)
    )
    terms = x.size // shape[1] if kind == "batch" else x[0].size // (3 if groups else shape[1])
    spread = wide(session.get(norm.inverse)).max(initial=1)
    reach = np.abs(wide(dy)).max() * np.abs(wide(scale)).max() * spread**2 * 4
    for got, wanted, size in ((norm.out, want[0], spread * 8), (back.dx, want[1], reach)):
        array = session.get(got)
        near(np.moveaxis(array, -1, 1) if last else array, wanted, dtype, terms, size)
    for got, wanted in zip(back[1:], want[2:], strict=True):
        near(session.get(got), wanted, got.dtype.name, x.size, np.sqrt(x.size) * spread * 4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_running_statistics_and_inference(session: Any, dtype: str) -> None:
    torch = torch_of()
    x, scale = drawn(1, (4, 3, 70), dtype) + DTYPES[dtype].np.type(2), drawn(2, (3,), dtype)
    own = "f8" if dtype == "f64" else "f4"
    mean, variance = session.put(np.zeros(3, own)), session.put(np.ones(3, own))
    running = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    given = session.put(x)
    for momentum in (1.0, 0.25):
        torch.nn.functional.batch_norm(torch.tensor(wide(x)), *running, None, None, True, momentum)
        session.submit(dnn.BatchNormTraining(x=given, running_mean=mean, running_variance=variance, momentum=momentum))
    for got, want in zip((mean, variance), running, strict=True):
        near(session.get(got), want.numpy(), "f64" if dtype == "f64" else "f32", 280, 8)
    got = session.submit(dnn.BatchNorm(x=given, mean=mean, variance=variance, scale=session.put(scale), epsilon=0.1))
    want = torch.nn.functional.batch_norm(torch.tensor(wide(x)), *running, torch.tensor(wide(scale)), None, eps=0.1)
    near(session.get(got), want.numpy(), dtype, 280, 16)
    inverse = session.put(np.asarray(1 / np.sqrt(running[1].numpy() + 0.1)).astype(own))
    back = session.submit(
        dnn.BatchNormBackward(dy=given, x=given, mean=mean, inverse=inverse, scale=session.put(scale), training=False)
    )
    factor = (wide(scale) / np.sqrt(running[1].numpy() + 0.1))[:, None]
    near(session.get(back.dx), wide(x) * factor, dtype, 2, 8)


@pytest.mark.parametrize("kind", ["layer", "rms", "batch", "group"])
def test_against_finite_differences(session: Any, kind: str) -> None:
    x, dy, scale = drawn(5, (2, 4, 3), "f64"), drawn(6, (2, 4, 3), "f64"), drawn(7, (12,), "f64")
    put = session.put
    line = put(scale.reshape(4, 3) if kind in ("layer", "rms") else scale[:4])

    def of(a: Array) -> Any:
        return session.get(forward(put(a)).out)

    if kind in ("layer", "rms"):
        message = dnn.LayerNormTraining if kind == "layer" else dnn.RmsNormTraining
        settings: dict[str, Any] = {"axes": 2}
    else:
        message = dnn.BatchNormTraining if kind == "batch" else dnn.GroupNormTraining
        settings = {"groups": 2} if kind == "group" else {}

    def forward(a: Any) -> Any:
        return session.submit(message(x=a, scale=line, **settings))

    kept = forward(put(x))
    backward = {
        "layer": dnn.LayerNormBackward, "rms": dnn.RmsNormBackward, "batch": dnn.BatchNormBackward,
        "group": dnn.GroupNormBackward,
    }[kind]  # fmt: skip
    statistics = {"inverse": kept.inverse} | ({} if kind == "rms" else {"mean": kept.mean})
    got = session.submit(backward(dy=put(dy), x=put(x), scale=line, **statistics, **settings))
    np.testing.assert_allclose(session.get(got.dx), by_differences(of, x, dy), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("message", [dnn.LayerNorm, dnn.RmsNorm, dnn.GroupNorm, dnn.InstanceNorm])
def test_large_equal_and_broken_numbers(session: Any, dtype: str, message: Any) -> None:
    """Sums of halves do not overflow, equal numbers have no deviation, a broken row breaks no other."""
    x = np.zeros((4, 1, 264), DTYPES[dtype].np)
    x[0], x[1], x[2] = 60000, np.where(np.arange(264) % 2, 40000, -40000), 1
    x[2, 0, 5], x[3] = np.inf, np.nan
    got = wide(session.get(session.submit(message(x=session.put(x)))))
    flat = 1.0 if message is dnn.RmsNorm else 0.0
    np.testing.assert_allclose(got[0], flat, atol=0.02)
    np.testing.assert_allclose(np.abs(got[1]), 1, rtol=0.02)
    assert np.isnan(got[2, 0, 5])
    assert np.isnan(got[3]).all()


def test_a_result_in_the_place_of_the_operand(session: Any) -> None:
    x = drawn(1, (6, 40), "f32")
    a, b = session.put(x), session.put(x)
    want = session.get(session.submit(dnn.LayerNorm(x=a)))
    session.submit(dnn.LayerNorm(x=b, out=b))
    np.testing.assert_array_equal(session.get(b), want)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda p: dnn.LayerNorm(x=p(2, 3), axes=3), r"axes is 3; x has shape \(2, 3\)"),
        (lambda p: dnn.LayerNorm(x=p(2, 0)), "nothing to normalise"),
        (lambda p: dnn.LayerNorm(x=p(2, 3), scale=p(2)), r"scale is f32\[2\]; it must be f32 and have shape \(3,\)"),
        (lambda p: dnn.LayerNorm(x=p(2, 3), epsilon=-1.0), "epsilon is -1.0"),
        (lambda p: dnn.BatchNormTraining(x=p(1, 3)), "fewer than 2 elements"),
        (lambda p: dnn.BatchNormTraining(x=p(4, 3), running_mean=p(3)), "pass both, or none"),
        (lambda p: dnn.GroupNorm(x=p(2, 6, 4), groups=4), "groups is 4; it must divide the 6 channels"),
        (lambda p: dnn.InstanceNorm(x=p(2, 6, 4), axis=0), "counts items"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        session.submit(make(lambda *shape: session.put(np.zeros(shape, "f4"))))
