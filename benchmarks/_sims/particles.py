"""A step of particles that fall on a floor, beside Numba, Warp, torch, a kernel of CuPy's, and a copy."""

from typing import Any

import numpy as np

import callboard as cb
from _sims.bench import Bench, Section, faster

STEPS = 20
DT = 1e-4
TEXT = r"""
extern "C" __global__ void moved(float *x, float *v, int n, float dt) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float u = v[n + i] - 9.8f * dt;
    x[i] += v[i] * dt, x[2 * n + i] += v[2 * n + i] * dt;
    float y = x[n + i] + u * dt;
    if (y < 0.0f) y = 0.0f, u = u < 0.0f ? -0.5f * u : u;
    x[n + i] = y, v[n + i] = u;
}
"""
"""What a careful user of CuPy writes; it does not read and write velocities that stay as they are."""


def section(bench: Bench) -> Section:
    """100,000 on a CPU, 16 million on a GPU."""
    n = bench.size(100_000, 16_000_000)
    x, v = np.random.default_rng(0).random((2, n, 3), "f4")
    config = cb.ParticleConfig(colliders=(cb.Plane(),))
    simulation = cb.ParticleSystemActor(bench.gpu, x, v, config=config, snapshot_every=1_000_000)
    bench.done(simulation.start)
    ours = f"of {STEPS}"
    subjects = {
        "callboard": bench.wait(lambda: simulation.step(DT)),
        ours: bench.wait(lambda: simulation.step(DT, STEPS), STEPS),
        "copy": bench.copied(2 * (x.nbytes + v.nbytes), STEPS),
    }
    subjects |= _by_cupy(bench, x, v) if bench.cuda else _by_numba(bench, x, v)
    if bench.peer("warp"):
        from _sims.warp_particles import stepper

        steps = stepper(x, v, bench.warp_device)
        subjects["Warp"] = bench.call(lambda: steps(STEPS), STEPS)
    if torch := bench.peer("torch"):
        subjects["torch"] = _by_torch(bench, torch, x, v)

    def bars(found: Any) -> list[Any]:
        if bench.cuda:
            return [faster(found, "copy", ours, 0.7), faster(found, "CuPy", ours, 1.0)]
        return [faster(found, "Warp", ours, 1.9), faster(found, "Numba by hand", ours, 0.97)]

    return Section(f"{n} particles, a step", subjects, ours, bars, {})


def _by_cupy(bench: Bench, x: Any, v: Any) -> dict[str, Any]:
    cupy = bench.peer("cupy")
    if cupy is None:
        return {}
    kernel = cupy.RawKernel(TEXT, "moved")
    held = [cupy.asarray(np.ascontiguousarray(one.T)) for one in (x, v)]
    arguments = (*held, np.int32(len(x)), np.float32(DT))
    return {"CuPy": bench.launch(cupy, lambda: kernel((-(-len(x) // 256),), (256,), arguments), STEPS)}


def _by_torch(bench: Bench, torch: Any, x: Any, v: Any) -> Any:
    p, u = (torch.from_numpy(np.ascontiguousarray(one.T)).to(bench.torch_device) for one in (x, v))

    def step() -> None:
        u[1] -= 9.8 * DT
        p.add_(u, alpha=DT)
        below = p[1] < 0
        u[1].copy_(torch.where(below & (u[1] < 0), -0.5 * u[1], u[1]))
        p[1].clamp_(min=0)

    return bench.launch(torch, step, STEPS)


def _by_numba(bench: Bench, x: Any, v: Any) -> dict[str, Any]:
    numba = bench.peer("numba")
    if numba is None:
        return {}

    @numba.njit(error_model="numpy")
    def by_hand(x: Any, v: Any, n: int) -> None:
        dt, g, zero, left = np.float32(DT), np.float32(-9.8), np.float32(0), np.float32(-0.5)
        for _ in range(n):
            for i in range(x.shape[1]):
                v[1, i] += g * dt
                x[0, i] += v[0, i] * dt
                x[1, i] += v[1, i] * dt
                x[2, i] += v[2, i] * dt
                if x[1, i] < zero:
                    x[1, i] = zero
                    v[1, i] *= left if v[1, i] < zero else np.float32(1)

    held = np.ascontiguousarray(x.T), np.ascontiguousarray(v.T)
    by_hand(*held, 1)
    return {"Numba by hand": bench.call(lambda: by_hand(*held, STEPS), STEPS)}
