"""New arrays: values, dtypes, devices; and the way in and out of other packages."""

from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core.dtype import DTYPES

NAMES = ["bool", "i8", "i64", "u16", "f32", "f64", "c64", "c128"]


def same(got: Any, want: Any, dtype: str) -> None:
    assert got.dtype is DTYPES[dtype]
    np.testing.assert_allclose(got.get(), want, rtol=1e-15)


@pytest.mark.parametrize(
    "obj, dtype",
    [(True, "bool"), ([1, 2], "i64"), ([[1.5]], "f64"), (1j, "c128"), (np.arange(3, dtype="i2"), "i16"), ([], "f64")],
)
def test_asarray_of_host_values(session: cb.sync.Device, obj: Any, dtype: str) -> None:
    same(session.xp.asarray(obj), obj, dtype)
    same(session.xp.asarray(obj, dtype="c128"), obj, "c128")
    same(session.array(obj), obj, dtype)


def test_asarray_of_an_array_copies_when_it_must(session: cb.sync.Device) -> None:
    xp = session.xp
    x = xp.asarray([1, 2, 3])
    assert xp.asarray(x) is x
    assert xp.asarray(x, dtype=xp.int64, copy=False) is x
    copied = xp.asarray(x, copy=True)
    converted = xp.asarray(x, dtype=xp.float32)
    x[0] = 7
    same(copied, [1, 2, 3], "i64")
    same(converted, [1, 2, 3], "f32")
    same(session.array(x), [7, 2, 3], "i64")
    for make in (lambda: xp.asarray(x, dtype="f32", copy=False), lambda: xp.asarray([1], copy=False)):
        with pytest.raises(ValueError, match="leave out copy=False"):
            make()


@pytest.mark.parametrize("name", NAMES)
def test_full_of_one_number(session: cb.sync.Device, name: str) -> None:
    xp = session.xp
    same(xp.zeros((2, 3), dtype=name), np.zeros((2, 3)), name)
    same(xp.ones(4, dtype=name), np.ones(4), name)
    same(xp.full((2,), 1, dtype=name), np.ones(2), name)
    same(xp.full((2, 2), xp.asarray(1), dtype=name), np.ones((2, 2)), name)
    assert xp.empty((2, 0), dtype=name).shape == (2, 0)
    assert xp.empty_like(xp.ones(3, dtype=name)).dtype is DTYPES[name]


@pytest.mark.parametrize("value, dtype", [(True, "bool"), (3, "i64"), (0.5, "f64"), (2j, "c128")])
def test_full_has_the_dtype_of_the_number(session: cb.sync.Device, value: Any, dtype: str) -> None:
    same(session.xp.full((2,), value), np.full(2, value), dtype)


@pytest.mark.parametrize("args", [(5,), (2, 9), (9, 2, -3), (0, 1, 0.1), (0.5, 4), (3, 3), (5, 2), (-1, 7, 2.5)])
@pytest.mark.parametrize("dtype", [None, "f32", "i32", "c64"])
def test_arange(session: cb.sync.Device, args: Any, dtype: str | None) -> None:
    whole = all(isinstance(n, int) for n in args)
    if dtype == "i32" and not whole:
        return
    want = np.arange(*args)
    got = session.xp.arange(*args, dtype=dtype)
    assert got.dtype is DTYPES[dtype or ("i64" if whole else "f64")]
    np.testing.assert_allclose(got.get(), want, rtol=1e-6 if dtype else 1e-15)


@pytest.mark.parametrize("num", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("ends", [(0, 1), (5.0, -3.0), (1, 2 + 1j)])
def test_linspace(session: cb.sync.Device, ends: Any, endpoint: bool, num: int) -> None:
    got = session.xp.linspace(*ends, num, endpoint=endpoint)
    want = np.linspace(*ends, num, endpoint=endpoint)
    assert got.dtype is DTYPES["c128" if isinstance(ends[1], complex) else "f64"]
    np.testing.assert_allclose(got.get(), want, rtol=1e-14, atol=1e-15)
    if num > 1 and endpoint:
        assert got.get()[-1] == ends[1]


@pytest.mark.parametrize("shape", [(3, None), (2, 4), (4, 2), (0, 3)])
@pytest.mark.parametrize("k", [0, 1, -2, 9, -9])
def test_eye(session: cb.sync.Device, shape: Any, k: int) -> None:
    same(session.xp.eye(*shape, k=k, dtype="f32"), np.eye(*shape, k=k), "f32")


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies(session: cb.sync.Device, n: int) -> None:
    same(session.xp.fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5), "f64")
    same(session.xp.fft.rfftfreq(n, d=2.0), np.fft.rfftfreq(n, 2.0), "f64")
    assert session.xp.fft.fftfreq(n, dtype="f32").dtype is DTYPES["f32"]


def test_what_cannot_be_made_is_refused(session: cb.sync.Device) -> None:
    xp = session.xp
    for make, error, text in (
        (lambda: xp.arange(0, 3, 0), cb.ShapeError, "step is 0"),
        (lambda: xp.linspace(0, 1, -1), cb.ShapeError, "num is -1"),
        (lambda: xp.full((2,), "x"), TypeError, "fill_value is str"),  # type: ignore[arg-type]
        (lambda: xp.full((2,), 300, dtype="u8"), cb.ShapeError, "the integers from 0 to 255"),
        (lambda: xp.zeros(2, device="elsewhere:0"), cb.DeviceMismatch, "use that device's own dev.xp"),
        (lambda: xp.asarray(object()), TypeError, "is of type object; pass an array, or lists of numbers"),
    ):
        with pytest.raises(error, match=text):
            make()


def test_from_dlpack_takes_arrays_of_the_host(session: cb.sync.Device) -> None:
    host = np.arange(6.0).reshape(2, 3)
    got = session.xp.from_dlpack(host)
    host[0] = 9
    same(got, np.arange(6.0).reshape(2, 3), "f64")
    with pytest.raises(ValueError, match="copy=False"):
        session.xp.from_dlpack(host, copy=False)
    x = session.xp.ones(3)
    assert session.xp.from_dlpack(x) is x


def test_values_leave_by_float_and_item_of_a_blocking_device(session: cb.sync.Device) -> None:
    x = session.array([[3]])
    assert (x.item(), int(x), float(x), complex(x), bool(x), [10, 11, 12, 13][x]) == (3, 3, 3.0, 3 + 0j, True, 13)
    assert 11.0 in session.array([10, 11])
    assert 12 not in session.array([10, 11])
    with pytest.raises(TypeError, match="its dtype is not an integer"):
        range(session.array(1.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of 2 elements is"):
        bool(session.array([1, 2]))


def test_a_module_stands_for_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_DEVICE", "cpu")
    x = cb.xp.asarray([1.0, 2.0])
    try:
        assert float(cb.xp.sum(cb.xp.fft.fft(x).real if hasattr(x, "real") else cb.xp.real(cb.xp.fft.fft(x)))) == 2.0
        assert cb.xp.__array_namespace_info__().default_device() == x.device
        assert cb.xp.default() is x.__array_namespace__()
        with pytest.raises(AttributeError, match="nothing_like_this"):
            _ = cb.xp.nothing_like_this
    finally:
        cb.xp._opened.close()


@pytest.mark.parametrize("scalar", [np.asarray, "ref"])
def test_arrays_without_axes_are_numbers(session: cb.sync.Device, scalar: Any) -> None:
    xp = session.xp
    n = xp.asarray if scalar == "ref" else scalar
    same(xp.arange(n(4)), np.arange(4), "i64")
    same(xp.arange(n(0.5), n(3), n(1)), np.arange(0.5, 3), "f64")
    same(xp.linspace(n(0), n(1.0), n(5)), np.linspace(0, 1, 5), "f64")
    same(xp.eye(n(3), n(4), k=n(1)), np.eye(3, 4, k=1), "f64")
    same(xp.full((2,), n(2.5)), [2.5, 2.5], "f64")
    same(xp.tril(xp.ones((2, 2)), k=n(-1)), [[0, 0], [1, 0]], "f64")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda xp: xp.arange("a"), r"xp\.arange: stop is str; pass a number"),
        (lambda xp: xp.arange(xp.zeros(2)), r"xp\.arange: stop is <GpuRef f64\[2\]"),
        (lambda xp: xp.linspace(0, 1, 2.5), r"xp\.linspace: num is 2\.5; pass an int"),
        (lambda xp: xp.eye(np.zeros(3)), r"xp\.eye: n_rows is ndarray; pass an int"),
        (lambda xp: xp.full(2, np.ma.masked), "masked"),
    ],
)
def test_what_is_not_a_number_is_refused(session: cb.sync.Device, make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(session.xp)


@pytest.mark.parametrize("numbers", [(0, float("nan")), (0, float("inf")), (0, 1, 1j)])
def test_arange_takes_finite_real_numbers(session: cb.sync.Device, numbers: Any) -> None:
    with pytest.raises(cb.ShapeError, match=r"xp\.arange: from 0 to .*; pass finite real numbers"):
        session.xp.arange(*numbers)


async def test_a_number_on_the_device_of_asyncio_is_awaited_first() -> None:
    async with cb.device("cpu") as device:
        with pytest.raises(TypeError, match=r"await ref\.get\(\)"):
            device.xp.eye(device.xp.asarray(3))
