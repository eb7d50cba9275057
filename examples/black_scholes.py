"""Prices of a million options, and their deltas: Black and Scholes, Journal of Political Economy 81 (1973)."""

import asyncio
import sys
from typing import Any

import numpy as np
from scipy.stats import norm

import callboard as cb

SPOT, RATE, YEARS, N = 100.0, 0.03, 0.5, 1_000_000
normal = cb.elementwise("0.5 * erfc(-x * 0.7071067811865476)")


def prices(xp: Any, strike: Any, volatility: Any) -> tuple[Any, Any]:
    """Of calls, and how they change with the spot price: arrays of any shapes that broadcast."""
    spread = volatility * YEARS**0.5
    d1 = (xp.log(SPOT / strike) + RATE * YEARS) / spread + spread / 2
    delta = normal(d1)
    return SPOT * delta - strike * np.exp(-RATE * YEARS) * normal(d1 - spread), delta


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        strikes = gpu.xp.linspace(60, 140, N)
        price, delta = prices(gpu.xp, strikes, 0.2 + ((strikes - SPOT) / 200) ** 2)
        values, slopes, at = [await x[:: N // 50].get() for x in (price, delta, strikes)]

    spread = (0.2 + ((at - SPOT) / 200) ** 2) * YEARS**0.5
    d1 = (np.log(SPOT / at) + RATE * YEARS) / spread + spread / 2
    exact = SPOT * norm.cdf(d1) - at * np.exp(-RATE * YEARS) * norm.cdf(d1 - spread)
    assert np.allclose(values, exact, rtol=1e-10)
    for k, value, slope in zip(at[::2], values[::2], slopes[::2], strict=True):
        print(f"{k:6.1f} {value:6.2f} {'█' * round(value):<42} delta {slope:.2f} {'·' * round(20 * slope)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
