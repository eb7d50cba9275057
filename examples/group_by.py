"""Sales by customer without a data frame: sort, run lengths, segmented sums, the best ten, a histogram.

The keys are sorted beside the indices of the sales; runs of equal keys are the groups, their lengths summed up are the
offsets of the segments, and one call adds up each segment. Only the number of groups depends on the data, so that is
the only thing that is awaited on the way.
"""

import asyncio
import sys

import numpy as np

import callboard as cb

SALES, CUSTOMERS, BINS = 200_000, 5_000, 12


def sales(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    customers = (CUSTOMERS * rng.random(SALES) ** 1.2).astype(np.int32)  # a few buy often
    return customers, rng.lognormal(3, 1, SALES).astype(np.float32)


async def main(name: str) -> None:
    customers, amounts = sales()
    async with cb.device(name) as gpu:
        cub = gpu.cub
        keys, values = cub.sort_pairs(gpu.put(customers), gpu.put(amounts))
        groups = cub.run_length_encode(keys)
        await groups.values
        offsets = gpu.zeros(groups.values.size + 1, "i64")
        cub.scan(groups.lengths, out=offsets[1:])
        totals = cub.segmented_reduce(values, offsets)
        best = cub.top_k(totals, 10)
        highest = float(await cub.reduce(totals, operation="max").get())
        counts = cub.histogram_even(totals, BINS, 0, highest)
        found, sums, top = await groups.values.get(), await totals.get(), await best.indices.get()

        exact = np.bincount(customers, amounts, CUSTOMERS)
        np.testing.assert_array_equal(found, np.unique(customers))
        np.testing.assert_allclose(sums, exact[found], rtol=1e-4)
        print(f"{SALES:,} sales, {found.size:,} customers; the ten best:")
        print("  " + ", ".join(f"#{found[at]} {sums[at]:,.0f}" for at in top))
        for at, count in enumerate(await counts.get()):
            print(f"  {at * highest / BINS:8,.0f} {'#' * round(60 * count / found.size)} {count}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
