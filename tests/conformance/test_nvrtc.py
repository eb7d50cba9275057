"""Kernels of the user's own: both bodies, against NumPy."""

from typing import Any

import kernels_lab as lab
import numpy as np
import pytest

import callboard as cb


def launched(session: Any, kernel: cb.Kernel, *args: Any, **named: Any) -> Any:
    """The launch by a session, host arrays put on the device; its arrays on the host."""
    put = [session.put(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    replies = kernel.answer(session.submit(kernel.op(*put, **named)))
    return tuple(map(session.get, replies)) if isinstance(replies, tuple) else session.get(replies)


def drawn(*shape: int, dtype: str = "f4") -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 10_000])
def test_an_output_is_made(session: Any, n: int) -> None:
    x = drawn(n)
    np.testing.assert_array_equal(launched(session, lab.scaled, x, 2.5), x * np.float32(2.5))


def test_an_output_is_given(session: Any) -> None:
    x, y = session.put(drawn(300)), session.empty(300)
    session.submit(lab.scaled.op(x, 3.0, y=y))
    np.testing.assert_array_equal(session.get(y), drawn(300) * np.float32(3))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_a_template_and_an_array_in_place(session: Any, dtype: str) -> None:
    x, y = np.arange(12).reshape(3, 4).astype(dtype), np.ones((3, 4), dtype)
    updated, count = launched(session, lab.axpy, x, y, 3, 12)
    np.testing.assert_array_equal(updated, 3 * x + y)
    assert count.tolist() == [12]


def test_several_outputs_and_numbers_that_the_shapes_say(session: Any) -> None:
    a, b = drawn(33, 20), drawn(20, 17)
    c, rows = launched(session, lab.product, a, b)
    np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(rows, np.arange(33) + 33 * 2 + 17.0)


@pytest.mark.parametrize("n", [1, 256, 1000])
def test_dynamic_shared_memory(session: Any, n: int) -> None:
    x = np.arange(n, dtype="f4")
    np.testing.assert_array_equal(
        launched(session, lab.block_sums, x), [x[i : i + 256].sum() for i in range(0, n, 256)]
    )


@pytest.mark.parametrize("dtype", lab.NUMBERS)
def test_numbers_of_every_dtype_arrive(session: Any, dtype: str) -> None:
    value = lab.NUMBERS[dtype][1]
    kind = cb.as_dtype(dtype).np
    out, others = launched(session, lab.stored(dtype), -7, value, 0.125, np.zeros(1, kind), np.zeros(2))
    np.testing.assert_array_equal(out, np.array([value], kind))
    assert others.tolist() == [-7, 0.125]


def test_nothing_is_launched_for_no_elements(session: Any) -> None:
    assert launched(session, lab.scaled, drawn(0), 2.0).shape == (0,)
