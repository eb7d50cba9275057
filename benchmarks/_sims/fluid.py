"""A step of a fluid beside torch: semi-Lagrangian advection by ``grid_sample``, and 40 Jacobi sweeps."""

from typing import Any

import numpy as np

import callboard as cb
from _sims.bench import Bench, Section, faster, takes

DT = 1 / 60
SWEEPS = 40


def section(bench: Bench) -> Section:
    """256 by 256 on a CPU, 1024 by 1024 on a GPU."""
    side = bench.side(256, 1024, 16)
    source = cb.FluidSource(center=(side / 2, side / 8, 0), radius=side / 16, density=2.0, acceleration=(0, 60, 0))
    config = cb.FluidConfig(width=side, height=side, sources=(source,), buoyancy=(5.0,))
    fluid = cb.FluidSimulationActor(bench.gpu, config, snapshot_every=1_000_000)
    bench.done(fluid.start)
    bench.done(lambda: fluid.step(DT, 30))
    flow = bench.done(fluid.snapshot)
    subjects = {
        "callboard": bench.wait(lambda: fluid.step(DT)),
        "of 5": bench.wait(lambda: fluid.step(DT, 5), 5),
    }
    facts = {"divergence": flow.divergence}
    if torch := bench.peer("torch"):
        step = _by_torch(torch, flow, bench.torch_device)
        subjects["torch"] = bench.launch(torch, step, 5)

    def bars(found: Any) -> list[Any]:
        return [faster(found, "torch", "of 5", 2), *([takes(found, "of 5", 1e-3)] if bench.cuda else [])]

    return Section(f"fluid of {side} x {side}, a step", subjects, "of 5", bars, facts)


def _by_torch(torch: Any, flow: Any, where: str) -> Any:
    """A step that is less than ours: first order, and a pressure that 40 sweeps do not find."""
    u, v = (torch.from_numpy(np.array(one)).to(where)[None] for one in flow.velocities[:2])
    dye = torch.from_numpy(np.array(flow.density[:1])).to(where)
    side = dye.shape[-1]
    ticks = torch.linspace(-1 + 1 / side, 1 - 1 / side, side, device=where)
    places = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), -1)[None]
    laplace = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=torch.float32, device=where)[None, None] / 4
    functional = torch.nn.functional

    def step() -> None:
        with torch.inference_mode():
            back = places - torch.stack([u, v], -1)[:, 0] * (2 * DT / side)
            fields = torch.cat([u, v, dye])[:, 0][None]
            moved = functional.grid_sample(fields, back, align_corners=False, padding_mode="border")[0]
            moved[1] += 5.0 * DT * moved[2]
            wide = functional.pad(moved[:2][None], (1, 1, 1, 1), mode="replicate")[0]
            apart = (wide[0, 1:-1, 2:] - wide[0, 1:-1, :-2] + wide[1, 2:, 1:-1] - wide[1, :-2, 1:-1]) / 2
            p, b = torch.zeros_like(apart)[None, None], apart[None, None] / 4
            for _ in range(SWEEPS):
                p = functional.conv2d(functional.pad(p, (1, 1, 1, 1), mode="replicate"), laplace) - b
            wide = functional.pad(p, (1, 1, 1, 1), mode="replicate")[0, 0]
            u[0, 0] = moved[0] - (wide[1:-1, 2:] - wide[1:-1, :-2]) / 2
            v[0, 0] = moved[1] - (wide[2:, 1:-1] - wide[:-2, 1:-1]) / 2
            dye[0, 0] = moved[2]

    return step
