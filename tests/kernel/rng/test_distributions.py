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
    "standard_exponential": ((), lambda g, size: g.exponential(size, dtype="f64")),
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


def test_choice_permutation_and_shuffle_are_numpys() -> None:
    with cb.sync.System() as system, system.device("cpu", isolation="thread") as dev:
        rng, lines = dev.rng.default_rng(3), np.arange(12.0).reshape(6, 2)
        x = dev.array(lines)
        assert rng.choice(5).shape == ()
        assert 0 <= int(rng.choice(5)) < 5
        assert rng.choice(x, (3, 4)).shape == (3, 4, 2)
        assert {tuple(line) for line in rng.choice(x, 200).get()} == {tuple(line) for line in lines}
        drawn = rng.choice(6, (2, 3), replace=False)
        assert drawn.shape == (2, 3)
        assert sorted(drawn.get().ravel()) == list(range(6))
        weighted = rng.choice(3, 4000, p=dev.array([0.0, 1.0, 3.0])).get()
        assert np.bincount(weighted) / 4000 == pytest.approx([0, 0.25, 0.75], abs=0.03)
        ordered = rng.permutation(x).get()
        np.testing.assert_array_equal(np.sort(ordered, axis=0), lines)
        np.testing.assert_array_equal(x.get(), lines)
        rng.shuffle(x)
        assert {tuple(line) for line in x.get()} == {tuple(line) for line in lines}
        for arguments, error, told in (
            ((0,), cb.ShapeError, "1 of 0 elements with replacement"),
            ((3, 4, False), cb.ShapeError, "4 of 3 elements without replacement"),
            ((3, 4, True, [0.5, 0.5, 0]), TypeError, r"p is list; pass an array of the device, dev\.put\(p\)"),
            ((3, 4, True, x), cb.ShapeError, r"p is f64\[6, 2\]; pass 3 weights"),
            (([1, 2],), TypeError, "got list; pass a number, or an array of the device"),
            ((dev.array(1.0),), cb.ShapeError, "it must have an axis"),
        ):
            with pytest.raises(error, match=told):
                rng.choice(*arguments)
