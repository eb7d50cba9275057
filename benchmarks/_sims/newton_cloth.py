"""The cloth of Newton's XPBD solver: springs, triangles and bending, as many iterations as there are passes."""

from typing import Any

import newton
import numpy as np
import warp as wp

from _sims.springs import Cloth

__all__ = ["stepper"]


def stepper(side: int, passes: int, dt: float, device: str) -> Cloth:
    """A curtain of ``side`` by ``side`` particles, pinned along its upper edge."""
    wp.config.quiet = True
    builder = newton.ModelBuilder(gravity=(0.0, -9.8, 0.0))
    builder.add_cloth_grid(
        pos=wp.vec3(0.0, 0.0, 0.0),
        rot=wp.quat_identity(),
        vel=wp.vec3(0.0, 0.0, 0.0),
        dim_x=side - 1,
        dim_y=side - 1,
        cell_x=1 / side,
        cell_y=1 / side,
        mass=0.2 / side**2,
        fix_top=True,
        add_springs=True,
        spring_ke=1e5,
        spring_kd=0.0,
        tri_ke=0.0,
        tri_ka=0.0,
        tri_kd=0.0,
        edge_ke=0.0,
        edge_kd=0.0,
    )
    model = builder.finalize(device=device)
    solver: Any = newton.solvers.SolverXPBD(model, iterations=passes, soft_body_relaxation=0.25)
    states, control = [model.state(), model.state()], model.control()

    def steps(n: int) -> None:
        for _ in range(n):
            states[0].clear_forces()
            solver.step(states[0], states[1], control, None, dt)
            states.reverse()
        wp.synchronize()

    ends = model.spring_indices.numpy().reshape(-1, 2)
    rest = model.spring_rest_length.numpy()

    def stretch() -> float:
        x = states[0].particle_q.numpy()
        return float((np.linalg.norm(x[ends[:, 0]] - x[ends[:, 1]], axis=1) / rest).max())

    return Cloth(steps, stretch)
