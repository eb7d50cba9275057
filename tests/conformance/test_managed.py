"""Managed memory: an array like others, which is moved, advised about, and refused beyond what is free."""

from typing import Any

import numpy as np
import pytest

from callboard.core.errors import OutOfMemory, ShapeError, UnsupportedOp
from callboard.kernel.managed import Advise, Allocate, Prefetch
from callboard.kernel.memory import Copy, Fill


def managed(session: Any, shape: tuple[int, ...], dtype: str = "f32") -> Any:
    array = session.submit(Allocate(shape=shape, dtype=dtype))
    assert (array.shape, array.dtype.name) == (shape, dtype)
    return array


def test_ops_take_it_like_any_other_array(session: Any) -> None:
    x = managed(session, (50, 70), "f64")
    session.submit(Fill(out=x, fill_value=2.0))
    session.submit(Fill(out=x[10:20], fill_value=3.0))
    expected = np.full((50, 70), 2.0)
    expected[10:20] = 3
    np.testing.assert_array_equal(session.get(session.submit(Copy(src=x.T))), expected.T)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[3:7, ::2], lambda x: x[2:2]], ids=["all", "view", "nothing"])
def test_moving_and_advising_change_no_value(session: Any, view: Any) -> None:
    x = managed(session, (9, 8), "i32")
    session.submit(Fill(out=x, fill_value=7))
    for to in ("host", "device", "host"):
        session.submit(Prefetch(x=view(x), to=to))
        assert (session.get(x) == 7).all()
    for advice in ("read_mostly", "preferred_location", "accessed_by"):
        for location in ("host", "device"):
            for unset in (False, True):
                session.submit(Advise(x=view(x), advice=advice, location=location, unset=unset))
    assert (session.get(x) == 7).all()


def test_what_is_not_there_is_refused(session: Any) -> None:
    with pytest.raises(OutOfMemory, match="are free"):
        session.submit(Allocate(shape=(1 << 44,), dtype="u8"))
    with pytest.raises(ShapeError, match="extents are >= 0"):
        session.submit(Allocate(shape=(-1,)))
    other = session.put(np.zeros(4))
    for op in (Prefetch(x=other), Advise(x=other)):
        with pytest.raises(UnsupportedOp, match=r"make it with dev\.managed\.allocate"):
            session.submit(op)
    with pytest.raises(TypeError, match="to"):
        Prefetch(x=other, to="disk")  # type: ignore[arg-type]
