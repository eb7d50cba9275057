"""Random numbers as a statistician sees them: moments, Kolmogorov-Smirnov, chi-square, independence. Fixed seeds.

Each test asks many questions at once; a p-value below ``ALARM`` in any of them fails. The seeds are fixed, so a test
that passes once passes always, until the numbers change.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from rng_lab import SAME_EVERYWHERE, run
from scipy import stats

import callboard as cb
from callboard.kernel.rng import (
    RngFillBeta,
    RngFillBits,
    RngFillCauchy,
    RngFillDiscrete,
    RngFillExponential,
    RngFillGamma,
    RngFillIntegers,
    RngFillLogNormal,
    RngFillNormal,
    RngFillPermutation,
    RngFillPoisson,
    RngFillUniform,
)

ALARM = 1e-4
N = 40_000
PSEUDO = (*SAME_EVERYWHERE, "mt19937")

CONTINUOUS: dict[str, tuple[Any, dict[str, float], Any]] = {
    "uniform": (RngFillUniform, {"low": -2, "high": 3}, stats.uniform(-2, 5)),
    "normal": (RngFillNormal, {"mean": 1, "std": 3}, stats.norm(1, 3)),
    "log_normal": (RngFillLogNormal, {"mean": 0.5, "std": 0.4}, stats.lognorm(0.4, scale=np.exp(0.5))),
    "exponential": (RngFillExponential, {"rate": 2}, stats.expon(scale=0.5)),
    "cauchy": (RngFillCauchy, {"loc": 1, "scale": 2}, stats.cauchy(1, 2)),
}
REJECTED: dict[str, tuple[Any, dict[str, float], Any]] = {
    "gamma, small": (RngFillGamma, {"shape": 0.3, "scale": 2}, stats.gamma(0.3, scale=2)),
    "gamma": (RngFillGamma, {"shape": 4.5}, stats.gamma(4.5)),
    "beta": (RngFillBeta, {"alpha": 2, "beta": 5}, stats.beta(2, 5)),
    "beta, small": (RngFillBeta, {"alpha": 0.4, "beta": 0.7}, stats.beta(0.4, 0.7)),
}


def check_continuous(sample: Any, law: Any) -> None:
    """Kolmogorov-Smirnov, the uniformity of the tails, and moments where there are any."""
    sample = sample.astype(np.float64)
    assert stats.kstest(sample, law.cdf).pvalue > ALARM
    ranks = np.sort(law.cdf(sample))
    for edge in (1e-3, 1e-2):
        for count in (np.count_nonzero(ranks < edge), np.count_nonzero(ranks > 1 - edge)):
            assert stats.binomtest(count, sample.size, edge).pvalue > ALARM
    mean, variance, kurtosis = law.stats("mvk")
    if np.isfinite(kurtosis):
        assert abs(sample.mean() - mean) < 4.5 * np.sqrt(variance / sample.size)
        assert abs(sample.var() - variance) < 4.5 * variance * np.sqrt((kurtosis + 2) / sample.size)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("kind", PSEUDO)
def test_continuous(session: Any, kind: str, name: str, dtype: str) -> None:
    cls, fields, law = CONTINUOUS[name]
    check_continuous(run(session, cls, N, dtype, kind=kind, seed=20, **fields), law)


QUASI = ("sobol32", "sobol64", "scrambled_sobol32", "scrambled_sobol64")


@pytest.mark.few(16)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("kind", QUASI)
def test_points_keep_their_order_in_every_law(session: Any, kind: str, name: str, dtype: str) -> None:
    """Each number is a monotone function of its point: the law has the points' low discrepancy, in all dimensions."""
    cls, fields, law = CONTINUOUS[name]
    seed = {"seed": 20} if "scrambled" in kind else {}
    points, dimensions = 4096, 3
    shape = (points, dimensions)
    sample = run(session, cls, shape, dtype, kind=kind, **seed, **fields).astype(np.float64)
    unit = run(session, RngFillUniform, shape, dtype, kind=kind, **seed).astype(np.float64)
    for column, place in zip(sample.T, unit.T, strict=True):
        ordered = column[np.argsort(place, kind="stable")]
        places = np.sort(place)
        steps = np.diff(ordered)[np.diff(places) > 0]
        assert (steps <= 0).all() or (steps >= 0).all()
        assert stats.kstest(column, law.cdf).statistic < (0.02 if dtype in ("f16", "bf16") else 0.002)


DRAWN: dict[str, tuple[Any, dict[str, float]]] = {
    **{name: (cls, fields) for name, (cls, fields, _) in REJECTED.items()},
    "poisson": (RngFillPoisson, {"rate": 3.0}),
    "integers": (RngFillIntegers, {"low": 0, "high": 7}),
    "permutation": (RngFillPermutation, {}),
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("kind", QUASI)
def test_laws_that_take_several_words_refuse_points(session: Any, kind: str, name: str) -> None:
    cls, fields = DRAWN[name]
    dtype = "f64" if name in REJECTED else "i32"
    with pytest.raises((cb.UnsupportedOp, ValueError), match="sobol"):
        run(session, cls, 64, dtype, kind=kind, **fields)


@pytest.mark.parametrize("name", REJECTED)
def test_by_rejection(session: Any, name: str) -> None:
    cls, fields, law = REJECTED[name]
    check_continuous(run(session, cls, N, "f64", seed=21, **fields), law)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_are_rounded_without_bias(session: Any, dtype: str) -> None:
    normal = run(session, RngFillNormal, N, dtype, seed=22).astype(np.float64)
    assert abs(normal.mean()) < 4.5 / np.sqrt(N)
    assert abs(normal.var() - 1) < 4.5 * np.sqrt(2 / N)
    uniform = run(session, RngFillUniform, N, dtype, seed=23).astype(np.float64)
    step = 2.0**-11 if dtype == "f16" else 2.0**-8
    assert abs(uniform.mean() + step / 2 - 0.5) < 4.5 / np.sqrt(12 * N)


def chi_square(observed: Any, probabilities: Any) -> float:
    """p-value; cells that expect fewer than 5 are put together."""
    expected = np.asarray(probabilities) * observed.sum()
    rare = expected < 5
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    expected *= observed.sum() / expected.sum()
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("rate", [0.1, 3.0, 9.99, 10.0, 40.0, 1000.0])
def test_poisson(session: Any, rate: float) -> None:
    sample = run(session, RngFillPoisson, N, "i32", seed=24, rate=rate)
    most = int(stats.poisson.ppf(1 - 1e-9, rate)) + 1
    counts = np.bincount(np.minimum(sample, most), minlength=most + 1)
    law = stats.poisson.pmf(np.arange(most + 1), rate)
    law[-1] += stats.poisson.sf(most, rate)
    assert chi_square(counts, law) > ALARM


@pytest.mark.parametrize("low, high", [(0, 2), (-3, 4), (0, 1000), (0, 3 * 2**30)])
@pytest.mark.parametrize("dtype", ["u32", "i64"])
def test_integers(session: Any, dtype: str, low: int, high: int) -> None:
    if dtype == "u32" and low < 0:
        low, high = 0, high - low
    sample = run(session, RngFillIntegers, N, dtype, seed=25, low=low, high=high).astype(np.int64) - low
    cells = min(high - low, 96)
    counts = np.bincount(sample * cells // (high - low), minlength=cells)
    edges = -(-np.arange(cells + 1) * (high - low) // cells)
    assert chi_square(counts, np.diff(edges) / (high - low)) > ALARM


def test_discrete(session: Any) -> None:
    weights = np.random.default_rng(3).random(50) ** 3
    sample = run(session, RngFillDiscrete, N, "i32", seed=26, weights=session.put(weights))
    assert chi_square(np.bincount(sample, minlength=50), weights / weights.sum()) > ALARM


def test_permutations_are_equally_likely(session: Any) -> None:
    orders = dict.fromkeys(itertools.permutations(range(4)), 0)
    for i in range(600):
        orders[tuple(run(session, RngFillPermutation, 4, "i32", seed=27, position=8 * i).tolist())] += 1
    assert chi_square(np.array(list(orders.values())), np.full(24, 1 / 24)) > ALARM
    long = run(session, RngFillPermutation, N, "i64", seed=28)
    assert abs(stats.spearmanr(np.arange(N), long).statistic) < 4.5 / np.sqrt(N)


# -- independence ------------------------------------------------------------------------------------------------------


def check_independent(x: Any, y: Any) -> None:
    """Uncorrelated, as they are and squared, and no cell of a grid too full."""
    assert abs(np.corrcoef(x, y)[0, 1]) < 4.5 / np.sqrt(x.size)
    assert abs(np.corrcoef((x - 0.5) ** 2, (y - 0.5) ** 2)[0, 1]) < 4.5 / np.sqrt(x.size)
    cells = np.bincount((x * 8).astype(int) * 8 + (y * 8).astype(int), minlength=64)
    assert chi_square(cells, np.full(64, 1 / 64)) > ALARM


@pytest.mark.parametrize("kind", PSEUDO)
def test_consecutive_fills_and_neighbours_are_independent(session: Any, kind: str) -> None:
    first = run(session, RngFillUniform, N, "f64", kind=kind, seed=30)
    second = run(session, RngFillUniform, N, "f64", kind=kind, seed=30, position=2 * N)
    check_independent(first, second)
    for lag in (1, 2, 4, 4096):
        check_independent(first[:-lag], first[lag:])
    other = run(session, RngFillUniform, N, "f64", kind=kind, seed=31)
    check_independent(first, other)


def test_halves_of_normal_pairs_are_independent(session: Any) -> None:
    normal = stats.norm.cdf(run(session, RngFillNormal, N, "f32", seed=32).astype(np.float64))
    check_independent(normal[0::2], normal[1::2])
    check_independent(normal[:-2:2], normal[2::2])


def test_subsequences_are_independent_of_each_other_and_of_the_stream(session: Any) -> None:
    gamma = stats.gamma(1.5).cdf(run(session, RngFillGamma, N, "f64", seed=33, shape=1.5))
    uniform = run(session, RngFillUniform, N, "f64", seed=33)
    check_independent(gamma, uniform)
    for lag in (1, 2, 1000):
        check_independent(gamma[:-lag], gamma[lag:])
    beta = stats.beta(2, 2).cdf(run(session, RngFillBeta, N, "f64", seed=34, alpha=2, beta=2))
    check_independent(beta, gamma)


@pytest.mark.parametrize("kind", PSEUDO)
def test_every_bit_is_fair(session: Any, kind: str) -> None:
    words = run(session, RngFillBits, N, "u32", kind=kind, seed=35)
    ones = np.unpackbits(words.view(np.uint8).reshape(N, 4), axis=1).sum(axis=0)
    assert min(stats.binomtest(int(n), N).pvalue for n in ones) > ALARM


@pytest.mark.parametrize("kind", ["sobol32", "scrambled_sobol32", "scrambled_sobol64"])
def test_points_integrate_better_than_numbers(session: Any, kind: str) -> None:
    """The mean of a smooth function over 2**12 points of 6 dimensions, ten times nearer than chance would bring it."""
    seed = 0 if kind == "sobol32" else 36
    x = run(session, RngFillUniform, (4096, 6), "f64", kind=kind, seed=seed)
    product = np.prod(1 + (x - 0.5) / np.arange(1, 7), axis=1)
    assert abs(product.mean() - 1) < 0.1 * product.std() / np.sqrt(4096)
    normal = run(session, RngFillNormal, (4096, 6), "f64", kind=kind, seed=seed, position=4096)
    assert (np.abs(normal.mean(axis=0)) < 0.1 / np.sqrt(4096)).all()
