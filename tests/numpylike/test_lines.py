"""Lines that scientists write, with ``np`` as NumPy and as ``dev.np``: shapes, dtypes and values are equal."""

from pathlib import Path
from typing import Any

import numpy

import callboard as cb

LINES = [
    line for line in (Path(__file__).parent / "lines.txt").read_text("utf-8").splitlines() if not line.startswith("#")
]


def names() -> dict[str, Any]:
    """The arrays of the lines, on the host."""
    rng = numpy.random.default_rng(7)
    a, v = rng.normal(size=(4, 6)), rng.normal(size=12)
    square = rng.normal(size=(5, 5))
    return {
        "a": a,
        "b": rng.normal(size=(6, 4)),
        "v": v,
        "w": rng.normal(size=12),
        "m": square @ square.T + 5 * numpy.eye(5),
        "z": rng.normal(size=8) + 1j * rng.normal(size=8),
        "i": rng.integers(0, 7, 12),
        "u": rng.integers(0, 255, (3, 4)).astype("u1"),
        "n": numpy.where(v > 0.8, numpy.nan, v),
        "f": a.astype("f4"),
        "t": v > 0,
    }


def same(got: Any, want: Any, *, values: bool) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, values=values)
        return
    if isinstance(want, numpy.dtype) or want is None:
        assert (got is None) if want is None else got == want
        return
    host = got.get() if isinstance(got, cb.GpuRef) else numpy.asarray(got)
    assert host.shape == numpy.shape(want)
    assert host.dtype == numpy.asarray(want).dtype
    if values:
        tight = 1e-5 if host.dtype == numpy.float32 else 1e-9
        numpy.testing.assert_allclose(host, want, rtol=tight, atol=tight)


def test_a_scientists_lines_run_unchanged_and_give_numpys_results(dev: cb.sync.Device) -> None:
    assert len(LINES) >= 100
    host = names()
    there = {name: dev.np.array(value) for name, value in host.items()}
    wrong = []
    for line in LINES:
        text = line.removeprefix("~")
        want = eval(text, {"np": numpy, **host})
        try:
            same(eval(text, {"np": dev.np, **there}), want, values=text is line)
        except (Exception, AssertionError) as e:
            wrong.append(f"{line}\n    {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)
