"""A step of a curtain, beside springs by hand in Numba and in Warp, with the same number of passes over them."""

import functools
from typing import Any

import numpy as np

import callboard as cb
from _sims.bench import Bench, Section, faster, takes
from _sims.springs import Cloth

DT = 1 / 60


def section(bench: Bench) -> Section:
    """64 by 64 with 10 passes on a CPU, 512 by 512 with 20 on a GPU."""
    side, passes = bench.side(64, 512), 20 if bench.cuda else 10
    config = cb.ClothConfig(
        width=side,
        height=side,
        spacing=1 / side,
        pinned=tuple(range(side * (side - 1), side * side)),
        substeps=passes,
        iterations=1,
        shear=0.0,
        bend=0.0,
    )
    cloth = cb.ClothSimulationActor(bench.gpu, config, snapshot_every=1_000_000)
    bench.done(cloth.start)
    at_rest = bench.done(cloth.snapshot)
    bench.done(lambda: cloth.step(DT, 30))
    drawn = bench.done(cloth.snapshot)
    y, x = np.divmod(drawn.springs, side)
    near = np.hypot(np.diff(x)[:, 0], np.diff(y)[:, 0]) < 1.9  # along edges and diagonals; others are soft
    facts = {"springs": float(len(near)), "callboard, stretch": float(np.nanmax(drawn.stretch[near]))}
    subjects = {
        "callboard": bench.wait(lambda: cloth.step(DT)),
        "of 10": bench.wait(lambda: cloth.step(DT, 10), 10),
    }
    given = at_rest.positions, drawn.springs, config, passes
    peers: dict[str, Cloth] = {}
    if not bench.cuda and bench.peer("numba"):
        from _sims.numba_cloth import stepper

        peers["Numba by hand"] = stepper(*given, DT)
    if bench.peer("warp"):
        from _sims.warp_cloth import stepper as by_warp

        peers["Warp by hand"] = by_warp(*given, DT, bench.warp_device)
    if bench.peer("newton"):
        from _sims.newton_cloth import stepper as by_newton

        peers["Newton's XPBD"] = by_newton(side, passes, DT, bench.warp_device)
    for name, peer in peers.items():
        peer.steps(30)
        facts[f"{name}, stretch"] = peer.stretch()
        subjects[name] = bench.call(functools.partial(peer.steps, 10), 10)

    def bars(found: Any) -> list[Any]:
        if bench.cuda:
            return [takes(found, "of 10", 2e-3), faster(found, "Warp by hand", "of 10", 1.0)]
        return [faster(found, "Newton's XPBD", "of 10", 5), faster(found, "Numba by hand", "of 10", 1.0)]

    return Section(f"cloth of {side} x {side}, {passes} passes, a step", subjects, "of 10", bars, facts)
