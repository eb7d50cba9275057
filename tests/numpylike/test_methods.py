"""NumPy's methods of arrays on refs, and how values are shown."""

import base64
import re
import zlib
from typing import Any

import numpy
import pytest

import callboard as cb

LINES = """
x.sum(0) | x.sum(1, keepdims=True) | x.sum(dtype="f4") | x.mean(0) | x.std(ddof=1) | x.var(1, ddof=1) | x.prod(1)
x.min() | x.max(0) | x.argmin(1) | x.argmax() | x.any() | x.all(0) | x.cumsum() | x.cumsum(1) | x.cumprod(0)
x.clip(1, 3) | x.round(1) | x.real | x.imag | x.conj() | x.conjugate() | x.T | x.transpose() | x.transpose(1, 0)
x.transpose((1, 0)) | x.swapaxes(0, 1) | x[None].squeeze() | x.ravel() | x.T.ravel() | x.flatten() | x.reshape(-1)
x.T.reshape(-1) | x.reshape(3, 2) | x.reshape((3, -1)) | x.reshape(3, 2, order="F") | x.diagonal() | x.trace()
x.copy()
x.repeat(2) | x.repeat(2, axis=0) | x.take([1, 4]) | x.take([0, 1], axis=1) | x.nonzero()[0] | x.argsort() | x.itemsize
x[0].searchsorted([0.5, 2]) | x.dot(x.T) | x.compress([True, False], axis=0) | x.flat[3] | len(x.flat) | x.tolist()
x.item(0) if False else x[0, 0].item() | x.argsort(axis=None) | x.view()[0] | x.astype(int) | x.tobytes()
"""


def test_methods_give_what_numpys_give(dev: cb.sync.Device) -> None:
    host = numpy.array([[1.25, 0.0, 3.5], [-2.0, 5.0, 4.0]])
    there = dev.np.array(host)
    for line in re.split(r"[|\n]", LINES.strip()):
        got, want = (eval(line, {"x": x}) for x in (there, host))
        got = got.get() if isinstance(got, cb.GpuRef) else got
        numpy.testing.assert_allclose(got, want, err_msg=line) if not isinstance(want, bytes) else None
        assert type(got) is type(want) or numpy.shape(got) == numpy.shape(want), line
        assert not isinstance(want, bytes) or got == want


def test_methods_that_write(dev: cb.sync.Device) -> None:
    x = dev.np.array([3.0, 1.0, 2.0])
    assert x.sort() is None
    assert x.tolist() == [1.0, 2.0, 3.0]
    x.put([0, -1], [7.0, 8.0])
    assert x.tolist() == [7.0, 2.0, 8.0]
    x.fill(4)
    assert x.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(TypeError, match=r"x.flat is read-only on a device; write x.reshape\(-1\)"):
        x.flat[0] = 1.0  # type: ignore[index]
    with pytest.raises(cb.ShapeError, match="copy it first"):
        dev.np.zeros((2, 3)).T.reshape(-1, copy=False)


def test_an_integer_that_does_not_fit_is_an_overflow_as_in_numpy(dev: cb.sync.Device) -> None:
    x: Any = dev.np.zeros(2, "u1")
    for refused in (lambda: x + 300, lambda: x.__setitem__(0, 300), lambda: x.fill(-1), lambda: x.__iadd__(256)):
        with pytest.raises(OverflowError, match=r"300|-1|256"):
            refused()
        with pytest.raises(cb.ShapeError):
            refused()


def test_values_are_shown_at_a_prompt_and_printed(dev: cb.sync.Device) -> None:
    x = dev.np.arange(3.0)
    assert str(x) == "[0. 1. 2.]", "printing waits"
    assert repr(x) == f"array([0., 1., 2.], device={dev.name!r})"
    assert repr(x[1]) == f"array(1., device={dev.name!r})"
    assert str(dev.np.sum(x)) == "3.0"
    later = x + 1
    assert repr(later).startswith("<GpuRef f64[3]"), "showing computes nothing"
    assert f"{later}" == "[1. 2. 3.]"
    large = dev.np.zeros(1001).result()
    assert repr(large).startswith("<GpuRef f64[1001]")
    assert str(large) == repr(large)
    x.free()
    assert "stale: freed" in str(x)
    singular = dev.np.linalg.inv(dev.np.zeros((2, 2)))
    assert "failed" in str(singular)


def test_a_notebook_shows_a_table_and_a_thumbnail(dev: cb.sync.Device) -> None:
    table = dev.np.array([[1.5, 2.0], [3.0, 4.0]]).result()
    assert "<tr><td>1.5</td><td>2.</td></tr>" in table._repr_html_()
    picture = dev.np.mgrid[0:300, 0:20][0].result()
    found = re.search(r'src="data:image/png;base64,([^"]+)"', picture._repr_html_())
    assert found
    data = base64.b64decode(found[1])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    columns, rows = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (rows, columns) == (100, 20)
    pixels = zlib.decompress(data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8])
    assert (pixels[1], pixels[-1]) == (0, 255), "from black, the least, to white"
    colours = dev.np.zeros((16, 16, 3), "u1").result()
    assert "<img" in colours._repr_html_()


def test_round_of_python(dev: cb.sync.Device) -> None:
    x = dev.np.asarray(numpy.array([1.256, -2.5]))
    assert float(round(x[0], 2)) == 1.26
    assert round(x, 1).get().tolist() == [1.3, -2.5]
    assert (round(x[0]), round(x[1])) == (1, -2)
    assert isinstance(round(x[0]), int)
    with pytest.raises(ValueError, match=r"round\(\) of .*: the value of 2 elements is no number"):
        round(x)


def test_reduceat_is_refused_with_what_there_is(dev: cb.sync.Device) -> None:
    x = dev.np.arange(6.0)
    with pytest.raises(TypeError, match=r"maximum.reduceat is not on a device: .* operation='max'") as e:
        dev.np.maximum.reduceat(x, [0, 3])
    assert "dev.cub.segmented_reduce(x, offsets" in str(e.value)
    assert dev.cub.segmented_reduce(x, dev.np.array([0, 3, 6]), operation="max").get().tolist() == [2, 5]
    with pytest.raises(TypeError, match=r"use np.hypot.reduce of each part$"):
        dev.np.hypot.reduceat(x, [0, 3])


def test_a_device_that_is_to_show_nothing_shows_handles() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", standby=None, preview=0) as dev:
        x = dev.np.arange(3.0).result()
        assert repr(x) == str(x)
        assert repr(x).startswith("<GpuRef f64[3]")
        assert "<pre>" not in x._repr_html_()
