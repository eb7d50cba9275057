"""Points put into cells and those near each counted, about 30, beside cKDTree and Warp's HashGrid."""

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import callboard as cb
from _sims.bench import Bench, Section, faster


def section(bench: Bench) -> Section:
    """100,000 points on a CPU, 10 million on a GPU."""
    n = bench.size(100_000, 10_000_000)
    x = np.random.default_rng(0).random((n, 3))
    radius = (30 / n / 4.19) ** (1 / 3)
    index = cb.SpatialIndexActor(bench.gpu, radius)

    async def ours() -> Any:
        index.rebuild(x)
        return await index.count_within(x, radius)

    workers = -1 if bench.cuda else 1
    subjects = {
        "callboard": bench.wait(ours),
        "cKDTree": bench.call(lambda: cKDTree(x).query_ball_point(x, radius, return_length=True, workers=workers)),
    }
    if bench.peer("warp"):
        from _sims.warp_neighbours import counter

        subjects["Warp"] = bench.call(counter(x, radius, bench.warp_device))
    facts = {"mean of neighbours": float(bench.done(ours).mean())}

    def bars(found: Any) -> list[Any]:
        return [
            faster(found, "Warp", "callboard", 1.0),
            faster(found, "cKDTree", "callboard", 100 if bench.cuda else 9),
        ]

    return Section(f"{n} points, built and counted", subjects, "callboard", bars, facts)
