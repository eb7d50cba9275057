"""A thousand million elements on a GPU: more than 32 bits count in bytes, and many times what fits into one pass."""

from typing import Any

import numpy as np
import pytest

from callboard.kernel import cub

PERIOD = 65_521


@pytest.mark.slow
def test_a_thousand_million_elements(session: Any, request: pytest.FixtureRequest) -> None:
    n = 10**9 if "cuda" in request.node.callspec.params["session"] else 10**7
    part = np.random.default_rng(1).integers(0, 251, PERIOD).astype(np.uint8)
    x = np.resize(part, n)
    counts = np.bincount(part, minlength=256) * (n // PERIOD) + np.bincount(part[: n % PERIOD], minlength=256)
    ref = session.put(x)
    total = int(counts @ np.arange(256))
    assert int(session.get(session.submit(cub.Reduce(x=ref, dtype="i64")))) == total
    sums = session.submit(cub.Scan(x=ref, dtype="u32"))
    for at in (0, 12_345, n // 2, n - 1):
        whole = (at + 1) // PERIOD * int(part.sum(dtype=np.int64)) + int(part[: (at + 1) % PERIOD].sum(dtype=np.int64))
        assert int(session.get(sums[at : at + 1])[0]) == whole % 2**32
    del sums
    histogram = session.submit(cub.HistogramEven(x=ref, bins=256, lower=0, upper=256))
    np.testing.assert_array_equal(session.get(histogram), counts)
    ordered = session.submit(cub.Sort(keys=ref))
    values = session.put(np.arange(251, dtype=np.uint8))
    begins = session.get(session.submit(cub.LowerBound(x=ordered, values=values)))
    np.testing.assert_array_equal(begins, np.cumsum(counts)[:251] - counts[:251])
    coded = session.submit(cub.RunLengthEncode(x=ordered))
    np.testing.assert_array_equal(session.get(coded.lengths), counts[counts > 0])
    kept = session.submit(cub.SelectIf(x=ref, comparison="less", number=7))
    assert kept.shape == (int(counts[:7].sum()),)
    assert int(session.get(session.submit(cub.ArgReduce(x=ref)))) == int(np.argmax(part))
