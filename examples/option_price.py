"""A European call, priced with scrambled Sobol points and with pseudo-random numbers, against Black and Scholes (1973).

The price of the share at the end is log-normal, so a fill makes it; the mean of the discounted pay-offs is the price.
Sixteen scramblings are sixteen independent estimates: they tell their own error, which falls about as fast as the
number of points grows, while that of pseudo-random numbers falls with its square root.
"""

import asyncio
import math
import sys

import numpy as np

import callboard as cb

SHARE, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.03, 0.25, 1.5
SCRAMBLINGS = 16
DRIFT = math.log(SHARE) + (RATE - VOLATILITY**2 / 2) * YEARS
SPREAD = VOLATILITY * math.sqrt(YEARS)


def closed_form() -> float:
    def below(x: float) -> float:
        return (1 + math.erf(x / math.sqrt(2))) / 2

    d = (math.log(SHARE / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / SPREAD
    return SHARE * below(d) - STRIKE * math.exp(-RATE * YEARS) * below(d - SPREAD)


async def estimate(shares: cb.GpuRef) -> float:
    """The price from log-normal prices at the end."""
    return math.exp(-RATE * YEARS) * float(np.maximum(await shares.get() - STRIKE, 0).mean())


async def main(name: str) -> None:
    exact = closed_form()
    print(f"closed form {exact:.6f}; root mean square error of {SCRAMBLINGS} estimates")
    errors: dict[str, list[float]] = {"sobol": [], "philox": []}
    prices: list[float] = []
    async with cb.device(name) as gpu:
        for power in range(6, 17, 2):
            for kind, found in errors.items():
                prices = []
                for seed in range(SCRAMBLINGS):
                    g = gpu.rng.sobol(scramble=True, seed=seed) if kind == "sobol" else gpu.rng.philox(seed)
                    prices.append(await estimate(g.log_normal(1 << power, mean=DRIFT, std=SPREAD, dtype="f64")))
                found.append(math.sqrt(np.mean(np.square(np.array(prices) - exact))))
                bar = "#" * max(round(6 * (6 + math.log10(found[-1]))), 1)
                print(f"  2^{power:<2} {kind:>6} {found[-1]:.1e} {bar}")
    mean, standard_error = np.mean(prices), np.std(prices) / math.sqrt(SCRAMBLINGS - 1)
    assert abs(mean - exact) < 5 * standard_error  # of the last ones, with philox
    assert errors["sobol"][-1] < 1e-3 < errors["philox"][-1]
    assert errors["sobol"][-1] < errors["sobol"][0] / 200
    print(f"with 2^16 points Sobol is {errors['philox'][-1] / errors['sobol'][-1]:.0f} times nearer")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
