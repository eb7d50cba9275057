"""Results that are scaled and added to an array: gradients that accumulate."""

from typing import Any

import msgspec
import numpy as np
import pytest
from sessions import serving
from tests.kernel import computed

from callboard.core.errors import ShapeError
from callboard.core.op import OPS
from callboard.kernel import dnn
from callboard.kernel.dnn.accumulation import Accumulating
from callboard.testing.tolerances import assert_close

OPS_WITH_ADDEND = [op for op in OPS.values() if issubclass(op, Accumulating)]


def message(session: Any, op: Any, dtype: str = "f32") -> Any:
    return computed.message_of(session, op, serving(session, op), (dtype,), computed.drawn)


def noise(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype("f4")


def test_which_ops() -> None:
    names = {op.__name__ for op in OPS_WITH_ADDEND}
    convolutions = {"Conv", "ConvBackwardData", "ConvBackwardFilter", "ConvTranspose"}
    assert names == convolutions | {
        f"{kind}{way}" for kind in ("Activation", "LogSoftmax", "Softmax") for way in ("", "Backward")
    }


@pytest.mark.parametrize("op", OPS_WITH_ADDEND)
def test_a_result_is_scaled_and_added(session: Any, op: Any) -> None:
    one = message(session, op)
    alone = session.get(session.submit(one))
    scale = abs(alone) + 1
    c = noise(alone.shape)
    ref = session.put(c)
    for alpha, beta, addend in ((2.0, 1.0, None), (1.0, 1.0, ref), (-0.5, 3.0, ref)):
        got = session.submit(msgspec.structs.replace(one, alpha=alpha, beta=beta, addend=addend))
        want = alpha * alone + (0 if addend is None else beta * c)
        assert_close(session.get(got), want, "f32", 4, scale=4 * scale + 3 * abs(c))
    np.testing.assert_array_equal(session.get(ref), c)
    result = session.submit(msgspec.structs.replace(one, addend=ref, **{op.returns[0]: ref}))
    assert_close(session.get(result), alone + c, "f32", 4, scale=scale + abs(c))
    np.testing.assert_array_equal(session.get(ref), session.get(result))


def test_views_halves_and_an_addend_that_is_not_read(session: Any) -> None:
    x = np.arange(6, dtype="f2").reshape(2, 3)
    ref, room = session.put(x), session.put(np.full((3, 2), 0.5, "f2"))
    op = dnn.Activation(x=ref, kind="relu", addend=room.T, alpha=2.0, beta=-1.0, out=room.T)
    np.testing.assert_array_equal(session.get(session.submit(op)), 2 * x - np.float16(0.5))
    bad = session.put(np.full((2, 3), np.nan, "f2"))
    got = session.submit(dnn.Activation(x=ref, kind="relu", addend=bad, beta=0.0))
    np.testing.assert_array_equal(session.get(got), x)
    none = session.submit(dnn.Softmax(x=session.put(np.ones((0, 3), "f4")), alpha=2.0))
    assert session.get(none).shape == (0, 3)


def image(session: Any, dtype: str = "f4") -> Any:
    return session.put(np.ones((1, 4, 3, 3), dtype))


REFUSED = {
    "no addend": (lambda s: dnn.Softmax(x=image(s), beta=2.0), "dnn.softmax: beta is 2.0 and addend is None"),
    "alpha": (lambda s: dnn.LogSoftmax(x=image(s), alpha=float("inf")), "alpha is inf; it must be a finite number"),
    "shape": (
        lambda s: dnn.ConvTranspose(x=image(s), w=filters(s), addend=image(s)),
        r"addend is f32\[1, 4, 3, 3\]; it must be like the result, f32\[1, 1, 5, 5\]",
    ),
    "i8": (
        lambda s: dnn.Conv(x=image(s, "i1"), w=image(s, "i1"), alpha=2.0),
        "are not for i8; pass scale",
    ),
}


def filters(session: Any) -> Any:
    return session.put(np.ones((4, 1, 3, 3), "f4"))


@pytest.mark.parametrize("make, says", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        session.submit(make(session))
