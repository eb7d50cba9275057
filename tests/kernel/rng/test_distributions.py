"""NumPy's names for random numbers: each is the generator's own distribution with NumPy's parameters."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.kernel.rng import Distributions

CALLS: dict[str, tuple[tuple[Any, ...], Callable[[Any, tuple[int, ...]], Any]]] = {
    "random": ((), lambda g, size: g.uniform(size, dtype="f64")),
    "uniform": ((2.0, 5.0), lambda g, size: g.uniform(size, low=2, high=5, dtype="f64")),
    "standard_normal": ((), lambda g, size: g.normal(size, dtype="f64")),
    "normal": ((3.0, 0.5), lambda g, size: g.normal(size, mean=3, std=0.5, dtype="f64")),
    "lognormal": ((0.1, 0.2), lambda g, size: g.log_normal(size, mean=0.1, std=0.2, dtype="f64")),
    "exponential": ((4.0,), lambda g, size: g.exponential(size, rate=0.25, dtype="f64")),
    "standard_cauchy": ((), lambda g, size: g.cauchy(size, dtype="f64")),
    "gamma": ((2.0, 3.0), lambda g, size: g.gamma(2.0, 3.0, size, dtype="f64")),
    "beta": ((2.0, 3.0), lambda g, size: g.beta(2.0, 3.0, size, dtype="f64")),
    "poisson": ((6.0,), lambda g, size: g.poisson(6.0, size, dtype="i64")),
    "integers": ((-3, 9), lambda g, size: g.integers(-3, 9, size, dtype="i64")),
}


def test_each_is_the_generators_and_has_numpys_parameters_and_mean() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread") as dev:
        for name, (parameters, own) in CALLS.items():
            rng = dev.rng.default_rng(11)
            found = getattr(rng, name)(*parameters, size=(40, 500))
            values = found.get()
            np.testing.assert_array_equal(values, own(dev.rng.philox(11), (40, 500)).get(), name)
            host = np.random.default_rng(5)
            like = getattr(host, name)(*parameters, size=(40, 500))
            assert (values.dtype, values.shape) == (like.dtype, like.shape), name
            middle = np.mean if values.dtype.kind == "i" else np.median  # Cauchy numbers have no mean
            assert middle(values) == pytest.approx(middle(like), abs=0.06 * np.std(like[abs(like) < 50])), name
            wanted = list(inspect.signature(getattr(host, name)).parameters) if name == "integers" else None
            assert wanted in (None, ["low", "high", "size", "dtype", "endpoint"])
        rng = dev.rng.default_rng(2)
        assert rng.normal().shape == ()
        assert set(rng.integers(3, size=500, endpoint=True).get().tolist()) == {0, 1, 2, 3}
        assert sorted(rng.permutation(9).get().tolist()) == list(range(9))
        with pytest.raises(cb.ShapeError, match=r"scale is 0\.0"):
            rng.exponential(0.0, 3)
        assert rng.random(3, dtype="f32").dtype.name == "f32"
        other = dev.rng.default_rng()
        assert isinstance(other, Distributions)
        assert other.generator.seed != dev.rng.default_rng().generator.seed


def test_the_device_has_the_same_methods_of_a_stream_of_its_own() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread") as dev:
        for name, (parameters, _) in CALLS.items():
            own = getattr(dev.rng, name)
            assert inspect.signature(own) == inspect.signature(getattr(dev.rng.default_rng(0), name))
            first, second = (own(*parameters, size=50).get() for _ in range(2))
            assert (first != second).any(), name
        stream = dev.rng._stream
        assert stream.kind == "philox"
        again = dev.rng.default_rng(stream.seed)
        again.generator.position = stream.position
        np.testing.assert_array_equal(dev.rng.normal(2, 3, (2, 5)).get(), again.normal(2, 3, (2, 5)).get())
