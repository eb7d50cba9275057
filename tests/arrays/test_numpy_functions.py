"""NumPy's functions of refs: those that read metadata answer, all others are refused; each is in exactly one class."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import overrides

import callboard as cb
from callboard.core.ref import metadata
from callboard.core.ref.metadata import METADATA

COMPUTED = """
all allclose amax amin angle any append apply_along_axis apply_over_axes argmax argmin argpartition argsort argwhere
around array_equal array_equiv array_split astype atleast_1d atleast_2d atleast_3d average bincount block
broadcast_arrays broadcast_to choose clip column_stack compress concatenate convolve copy corrcoef correlate
count_nonzero cov cross cumprod cumsum cumulative_prod cumulative_sum delete diag diagflat diagonal diff digitize dot
dsplit dstack ediff1d einsum expand_dims extract fix flatnonzero flip fliplr flipud geomspace gradient histogram
histogram2d histogram_bin_edges histogramdd hsplit hstack i0 imag inner insert interp intersect1d iscomplex isclose isin
isneginf isposinf isreal ix_ kron lexsort linspace logspace matrix_transpose max mean median meshgrid min moveaxis
nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile
nanstd nansum nanvar nonzero outer packbits pad partition percentile piecewise poly polyadd polyder polydiv polyfit
polyint polymul polysub polyval prod ptp quantile ravel ravel_multi_index real real_if_close repeat reshape resize roll
rollaxis roots rot90 round searchsorted select setdiff1d setxor1d sinc sort sort_complex split squeeze stack std sum
swapaxes take take_along_axis tensordot tile trace transpose trapezoid tril trim_zeros triu union1d unique
unique_all unique_counts unique_inverse unique_values unpackbits unravel_index unstack unwrap vander var vdot vsplit
vstack where
"""
"""Functions of numbers: they would compute on the host."""
HOST = """
array2string array_repr array_str busday_count busday_offset datetime_as_string is_busday save savetxt savez
savez_compressed
"""
"""Texts, files and dates."""
LIKE = """
arange array asanyarray asarray ascontiguousarray asfortranarray empty eye frombuffer fromfile fromfunction fromiter
fromstring full genfromtxt identity loadtxt ones require tri zeros
"""
"""Functions that make an array of the kind of ``like=``: on the device, ``xp`` makes them."""
WRITING = "copyto fill_diagonal place put put_along_axis putmask"
"""Functions that write into an array, or from one into another."""
WHOLE_MODULES = (
    *(
        "numpy.char",
        "numpy.fft",
        "numpy.lib.recfunctions",
        "numpy.lib.scimath",
        "numpy.lib.stride_tricks",
        "numpy.linalg",
    ),
    *("numpy.polynomial.polynomial", "numpy.strings"),
)
"""Modules all of whose functions read values."""
CLASSES = {
    "metadata": METADATA,
    "computed": set(COMPUTED.split()),
    "host": set(HOST.split()),
    "like": set(LIKE.split()),
    "writing": set(WRITING.split()),
}


def overridable() -> set[Any]:
    """The functions that NumPy asks refs about."""
    for module in WHOLE_MODULES:
        importlib.import_module(module)
    return set(overrides.get_overridable_numpy_array_functions())


def test_every_function_of_numpy_is_in_one_class() -> None:
    names = [name for names in CLASSES.values() for name in names]
    assert len(names) == len(set(names))
    functions = overridable()
    assert len(functions) >= 290
    own = {f.__name__ for f in functions if (f.__module__ or "numpy") == "numpy"}
    assert not own - set(names), "new functions of NumPy: say whether they read values"
    assert {f.__module__ for f in functions} - {None, "numpy"} <= set(WHOLE_MODULES)


def test_a_function_that_reads_values_is_refused_and_names_the_cure() -> None:
    with cb.sync.device("cpu", standby=None) as dev:
        x: Any = dev.array(np.arange(4.0))
        for function in overridable():
            if function.__module__ in (None, "numpy") and function.__name__ in METADATA:
                continue
            path = f"{function.__module__ or 'numpy'}.{function.__name__}".replace("numpy", "np", 1)
            with pytest.raises(TypeError, match=r"take them: `await ref\.get\(\)`") as raised:
                x.__array_function__(function, (type(x),), (x,), {})
            assert str(raised.value).startswith(f"{path} of <GpuRef")


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "can_cast": lambda x: np.can_cast(x, "f4"),
    "common_type": lambda x: np.common_type(x, np.float32(1)),
    "diag_indices_from": lambda x: np.diag_indices_from(x),
    "einsum_path": lambda x: np.einsum_path("ij,jk,kl", x, x, np.ones((3, 2)))[0],
    "empty_like": lambda x: np.empty_like(x).shape,
    "full_like": lambda x: np.full_like(x, 7),
    "iscomplexobj": lambda x: np.iscomplexobj(x),
    "isrealobj": lambda x: np.isrealobj(x=x),
    "may_share_memory": lambda x: (np.may_share_memory(x, x), np.may_share_memory(x, np.zeros(2))),
    "min_scalar_type": lambda x: np.min_scalar_type(x),
    "ndim": lambda x: (np.ndim(x), np.ndim(a=x)),
    "ones_like": lambda x: np.ones_like(x),
    "result_type": lambda x: np.result_type(x, 1j, "f4"),
    "shape": lambda x: np.shape(x),
    "shares_memory": lambda x: (np.shares_memory(x[:2], x[1:]), np.shares_memory(x[:1], x[1:])),
    "size": lambda x: (np.size(x), np.size(x, 1)),
    "tril_indices_from": lambda x: np.tril_indices_from(x, 1),
    "triu_indices_from": lambda x: np.triu_indices_from(arr=x),
    "zeros_like": lambda x: np.zeros_like(x),
}


def test_every_function_of_metadata_is_asked() -> None:
    assert set(QUESTIONS) == METADATA == metadata.METADATA


@pytest.mark.few(100)
@pytest.mark.parametrize("name", sorted(QUESTIONS))
@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_metadata_is_that_of_an_array_of_numpy(name: str, dtype: str) -> None:
    host = np.arange(9, dtype=dtype).reshape(3, 3)
    with cb.sync.device("cpu", standby=None) as dev:
        found, expected = QUESTIONS[name](dev.array(host)), QUESTIONS[name](host)
    np.testing.assert_equal(found, expected)
    assert type(found) is type(expected)


async def test_metadata_needs_no_value_and_no_wait() -> None:
    async with cb.device("cpu", standby=None) as dev:
        x: Any = dev.array(np.arange(6.0).reshape(2, 3))
        assert (np.ndim(x), np.shape(x), np.size(x), np.iscomplexobj(x), np.result_type(x)) == (
            *(2, (2, 3), 6, False),
            np.dtype("f8"),
        )
        found = dev.xp.nonzero(x)[0]
        assert (np.ndim(found), np.result_type(found), np.isrealobj(found)) == (1, np.dtype("i8"), True)
        assert np.may_share_memory(x, x[:1])
        assert not np.may_share_memory(x, np.zeros(2))
        with pytest.raises(TypeError, match=r"^np\.min_scalar_type of"):  # of one number it depends on the value
            np.min_scalar_type(x[0, 0])
        with pytest.raises(TypeError, match=r"^np\.copyto of"):  # the number is on the device
            np.full_like(np.zeros(2), x[0, 0])


def test_memory_is_compared_by_place() -> None:
    with cb.sync.device("cpu", isolation="thread", standby=None) as dev:
        x: Any = dev.array(np.arange(6.0))
        shared = np.from_dlpack(x)
        other = dev.array(np.arange(6.0))
        assert np.shares_memory(x, shared)
        assert np.shares_memory(shared[:1], x[:1])
        assert not np.shares_memory(shared[:1], x[1:])
        assert not np.may_share_memory(x, other)
        assert not np.shares_memory(x, np.asarray(x))
        assert np.shares_memory(x[:4], x[3:])
        assert not np.shares_memory(x[::2], x[1::2])
        assert np.may_share_memory(x[::2], x[1::2])  # within the same bounds
        adopted = dev.adopt(host := np.zeros(4))
        assert np.shares_memory(adopted, host[1:])
        assert not np.shares_memory(adopted[:1], host[1:])
        # np.asarray(x) is read-only: code that asks whether it has to be copied before it is written, copies it
        assert np.may_share_memory(np.asarray(x), x)


def test_memory_of_another_process_is_shared_with_none_here() -> None:
    with cb.sync.device("cpu", isolation="process", standby=None) as dev:
        x: Any = dev.array(np.arange(6.0))
        assert np.shares_memory(x, x[1:])
        assert not np.may_share_memory(x, np.zeros(6))


PROGRAM = """
import numpy as np, scipy.signal
from sklearn.cluster import KMeans
from sklearn.linear_model import Lasso
from sklearn.preprocessing import StandardScaler
import callboard as cb

host = np.random.default_rng(0).normal(size=(60, 4))
with cb.sync.device("cpu", standby=None) as dev:
    x, y = dev.array(host), dev.array(host @ [1.0, 2, 3, 4])
    for name, fitted in {
        "scaler": lambda x, y: StandardScaler().fit_transform(x),
        "kmeans": lambda x, y: KMeans(2, random_state=0, n_init=1).fit(x).cluster_centers_,
        "lasso": lambda x, y: Lasso(0.1).fit(x, y).coef_,
        "detrend": lambda x, y: scipy.signal.detrend(y),
    }.items():
        np.testing.assert_allclose(fitted(x, y), fitted(host, y.get()), err_msg=name)
    np.testing.assert_array_equal(x.get(), host)
print("fitted")
"""


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_estimators_without_dispatch_read_the_metadata_and_copy_the_values() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install scikit-learn")
    path = os.pathsep.join([str(Path(cb.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == "fitted", done.stdout + done.stderr
