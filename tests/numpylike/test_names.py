"""The names of ``dev.np``: all of NumPy's are there or left out with a reason; how parameters are bound."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import callboard as cb
from callboard.numpylike.binding import TABLE, row
from callboard.numpylike.missing import left_out
from callboard.numpylike.namespace import names
from callboard.numpylike.signatures import SIGNATURES

ROOT = Path(__file__).parents[2]
MODULES = {"": numpy, "linalg": numpy.linalg, "fft": numpy.fft, "random": numpy.random}
OF_THE_STREAM = {"Generator", "RandomState", "default_rng", "seed"}


@pytest.mark.parametrize("section", MODULES)
@pytest.mark.few(4)
def test_each_name_of_numpy_is_there_or_left_out_with_a_reason(section: str) -> None:
    theirs = {name for name in dir(MODULES[section]) if not name.startswith("_")} - {"test", "LinAlgError"}
    reasons = left_out()
    unexplained = {
        name for name in theirs - names(section) if (f"{section}.{name}" if section else name) not in reasons
    }
    assert not unexplained - (OF_THE_STREAM if section == "random" else set())
    assert not [name for name in names(section) if (f"{section}.{name}" if section else name) in reasons]


def test_each_row_reads_parameters_that_numpy_has() -> None:
    for path in TABLE:
        assert row(path).path == path


@pytest.mark.skipif(numpy.__version__ < "2.4", reason="NumPy before 2.4 does not tell the parameters of all functions")
def test_the_file_of_signatures_is_that_of_the_installed_numpy() -> None:
    for path, text in SIGNATURES.items():
        section, _, name = path.rpartition(".")
        owner = numpy.random.Generator if section == "Generator" else MODULES[section]
        theirs = inspect.signature(getattr(owner, name))
        if str(theirs) != "(*args, **kwargs)" and path != "arange":  # whose own text forbids start=
            mine = text.strip("()").replace("/, ", "").replace("*, ", "")
            assert [one.lstrip("*") for one in theirs.parameters] == [
                one.split("=")[0].strip("* ")
                for one in mine.split(", ")
                if one.split("=")[0].strip("* /").isidentifier()
            ], path


def test_a_name_that_is_left_out_tells_why_and_a_misspelled_one_the_nearest(dev: cb.sync.Device) -> None:
    for name, told in (
        ("vectorize", r"np has no 'vectorize' \(Python functions of single elements.*use cb.elementwise"),
        ("loadtxt", r"values pass through the host.*numpy.load"),
        ("medain", "np has no 'medain'; the nearest names are median"),
    ):
        with pytest.raises(AttributeError, match=told):
            getattr(dev.np, name)
        with pytest.raises(AttributeError, match=told):
            getattr(cb.np, name)
    with pytest.raises(AttributeError, match=r"np.linalg has no 'nrom'; the nearest names are norm"):
        _ = dev.np.linalg.nrom
    with pytest.raises(AttributeError, match=r"np.random has no 'vonmises' .*numpy.random"):
        _ = dev.np.random.vonmises
    with pytest.raises(AttributeError, match=r"dev.blas has no 'gem'; the nearest names are .*gemm"):
        _ = dev.blas.gem
    with pytest.raises(AttributeError, match=r"xp.fft has no 'fft2'; use fftn\(x, axes=\(-2, -1\)\)"):
        _ = dev.xp.fft.fft2
    with pytest.raises(AttributeError, match=r"'devce'; the nearest names are device"):
        _ = cb.devce
    assert not hasattr(dev.np, "__array__")


def test_parameters_are_numpys_and_others_are_refused(dev: cb.sync.Device) -> None:
    np = dev.np
    a = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert np.sum(a, 1).tolist() == np.sum(a, axis=1).tolist() == [3.0, 8.0]
    assert np.array([1, 2], order="C", subok=True).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"np.median\(\) got an unexpected keyword argument 'axes'"):
        np.median(a, axes=0)
    with pytest.raises(TypeError, match=r"np.sort\(\) missing required argument 'a' \(pos 1\)"):
        np.sort()
    with pytest.raises(TypeError, match=r"np.sort\(\) got multiple values for argument 'a'"):
        np.sort(a, a=a)
    with pytest.raises(TypeError, match=r"np.unique: the parameter sorted is not supported, and it is False"):
        np.unique(a, sorted=False)
    with pytest.raises(TypeError, match=r"takes at most 2 positional arguments"):
        np.vdot(a, a, a)
    assert "axis=None" in (np.sum.__doc__ or "")
    assert list(inspect.signature(np.median).parameters)[:2] == ["a", "axis"]


def test_out_and_where(dev: cb.sync.Device) -> None:
    np = dev.np
    x, out = np.arange(4.0), np.zeros(4)
    assert np.add(x, 1, out=out, where=x > 1) is out
    assert out.tolist() == [0.0, 0.0, 3.0, 4.0]
    total = np.zeros(())
    assert np.sum(x, out=total, where=x > 1) is total
    assert total.item() == 5.0
    assert np.cumsum(x, 0, None, out).tolist() == [0.0, 1.0, 3.0, 6.0]
    with pytest.raises(ValueError, match="must have one shape"):
        np.sum(x, out=out)
    with pytest.raises(TypeError, match="cannot cast from f64 to i64 with casting rule 'same_kind'"):
        np.add(x, 1, out=np.zeros(4, int))


def test_texts_of_dtypes_are_numpys(dev: cb.sync.Device) -> None:
    np = dev.np
    for text in ("f4", "i8", "u1", "?", "c8", "<f8", int, "float32"):
        assert np.zeros(2, text).dtype == numpy.dtype(text)
    assert np.zeros(2, "bf16").dtype.name == "bf16"
    with pytest.raises(TypeError, match="is not supported"):
        np.zeros(2, "O")
    assert np.add(np.ones(2, "f4"), numpy.float64(1)).dtype == numpy.float64
    assert np.add(np.ones(2, "f4"), 1.0).dtype == numpy.float32


def test_a_module_computes_where_the_arrays_are(dev: cb.sync.Device) -> None:
    x = dev.np.arange(6.0).reshape(2, 3)
    assert cb.np.sum(x, 0).tolist() == [3.0, 5.0, 7.0]
    assert cb.np.add.reduce(x, axis=1).device == x.device
    assert cb.np.linalg.norm(x).item() == pytest.approx(55**0.5)
    assert cb.np.concatenate([x, x]).shape == (4, 3)
    assert cb.np.pi == numpy.pi
    assert "norm" in dir(cb.np.linalg)
    assert "median" in dir(cb.np)


async def test_in_asyncio_nothing_waits() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as gpu:
        np = gpu.np
        x = np.linspace(0, 1, 5)
        y = np.median(np.stack([x, x + 1]), axis=0)
        assert (await y.get()).tolist() == (await (x + 0.5).get()).tolist()
        assert (await np.allclose(x, x).get()).item() is True
        assert repr(x).startswith("<GpuRef f64[5]")
        with pytest.raises(TypeError, match=r"tolist\(\) of a GpuRef .*await ref.get\(\)"):
            x.tolist()


@pytest.mark.slow
def test_a_sample_of_numpys_own_tests() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "numpy_tests", "lib/tests/test_twodim_base"],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tools'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:]


def test_the_stub_is_of_the_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "np-stub"))
    assert script["STUB"].read_text("utf-8") == script["stub"](), "run: scripts/np-stub"
