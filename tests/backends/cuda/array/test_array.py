"""What the suite of the array library does not show of CUDA's side."""

from typing import Any

import numpy as np
import pytest

from callboard.backends.cuda.array.indexing import joint_steps
from callboard.core.errors import ShapeError
from callboard.kernel.array import Cast, Gather


def test_a_cast_to_the_same_dtype_is_a_copy(session: Any) -> None:
    host = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(session.get(session.submit(Cast(src=session.put(host).T, dtype="f32"))), host.T)


def test_a_0d_array_is_converted(session: Any) -> None:
    assert session.get(session.submit(Cast(src=session.put(np.float32(2.5)), dtype="i32"))) == 2


def test_what_is_out_of_range_is_counted(session: Any) -> None:
    src, index = session.put(np.arange(3.0)), session.put(np.array([9, 0, -4], "i8"))
    with pytest.raises(ShapeError, match=r"indices\[0\] holds 9, .* \(2 of 3 are\)"):
        session.get(session.submit(Gather(src=src, indices=(index,))))


def test_neighbouring_axes_are_merged() -> None:
    assert joint_steps((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), [(1,), (1,)])
    assert joint_steps((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ((2, 12), [(12, 1), (0, 1)])
    assert joint_steps((1, 1), [(5, 1)]) == ((), [])
