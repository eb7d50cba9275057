"""The ops of particles: what a CPU computes, and CUDA."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.particles import plain
from callboard.realtime.particles.cuda import CONTACTS, EMITS, KICK, MOVES, PLACES, TICKS

__all__ = ["advance", "contacts", "emit", "kick", "place", "tick"]

PACKAGE = "callboard.realtime.particles"


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], inout life: f32[n], inout clock: f64[3], in mass: f32[n],"
    "in step: f32[1], in world: f32[4], in fields: f32[f, 12], in colliders: f32[c, 12], n: i32, f: i32, c: i32,"
    "method: i32, mortal: i32, massive: i32, ticking: i32",
    cuda=MOVES,
    grid=lambda n: -(-n // 256),
    block=256,
)
def advance(
    x: Any, v: Any, life: Any, clock: Any, mass: Any, step: Any, world: Any, fields: Any, colliders: Any, method: int,
    mortal: int, massive: int, ticking: int,
) -> None:  # fmt: skip
    """Move particles; see :func:`.plain.advance`. ``ticking``: not 0 if no emitter moves the clock."""
    moves = engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")
    masses = mass if massive else None
    moves.advance(x, v, life, masses, step[0], world, fields, colliders, int(method), int(mortal))
    if ticking:
        clock[0] += np.float64(step[0])


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], inout life: f32[n], inout mass: f32[n], inout attributes: f32[k, m],"
    "in rank: i32[n], in clock: f64[3], in step: f32[1], in emitters: f32[e, 12], in born: f32[e, k], n: i32, e: i32,"
    "k: i32, m: i32, seed: u32",
    cuda=EMITS,
    grid=lambda n: -(-n // 256),
    block=256,
)
def emit(
    x: Any, v: Any, life: Any, mass: Any, attributes: Any, rank: Any, clock: Any, step: Any, emitters: Any, born: Any,
    seed: int,
) -> None:  # fmt: skip
    """Make particles in free slots; see :func:`.plain.emit`."""
    plain.emit(x, v, life, mass, attributes, clock, step[0], emitters, born, int(seed))


@kernel(
    "inout clock: f64[3], in rank: i32[n], in free: i32[n], in step: f32[1], in emitters: f32[e, 12], n: i32, e: i32",
    cuda=TICKS,
    grid=1,
    block=1,
)
def tick(clock: Any, rank: Any, free: Any, step: Any, emitters: Any) -> None:
    """Move the clock: seconds, particles made, and particles for which there was no slot."""
    plain.tick(clock, rank, free, step[0], emitters)


@kernel(
    "in x: f32[3, n], in v: f32[3, n], in life: f32[n], in order: i32[n], in starts: i32[s], out out: f32[3, n],"
    "n: i32, s: i32, diameter: f32, stiffness: f32, damping: f32",
    cuda=CONTACTS,
    grid=lambda n: -(-n // 128),
    block=128,
)
def contacts(
    x: Any, v: Any, life: Any, order: Any, starts: Any, out: Any, diameter: float, stiffness: float, damping: float
) -> None:
    """Forces between particles that touch; see :func:`.plain.contacts`."""
    numbers = (np.float32(one) for one in (diameter, stiffness, damping))
    engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled").contacts(x, v, life, order, starts, out, *numbers)


@kernel(
    "inout v: f32[3, n], in force: f32[3, n], in mass: f32[n], in step: f32[1], n: i32, part: f32",
    cuda=KICK,
    grid=lambda n: -(-3 * n // 256),
    block=256,
)
def kick(v: Any, force: Any, mass: Any, step: Any, part: float) -> None:
    """Velocities after a part of a step under these forces."""
    v += force * (step[0] * np.float32(part)) / mass


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], inout life: f32[n], inout mass: f32[n], inout attributes: f32[k, m],"
    "in rank: i32[n], in given: f32[w, c], n: i32, k: i32, m: i32, w: i32, c: i32",
    cuda=PLACES,
    grid=lambda n: -(-n // 256),
    block=256,
)
def place(x: Any, v: Any, life: Any, mass: Any, attributes: Any, rank: Any, given: Any) -> None:
    """Put particles into free slots: their positions, velocities, lives, masses and attributes, ``[8 + k, c]``."""
    slots = np.flatnonzero(life <= 0)[: given.shape[1]]
    made = given[:, : len(slots)]
    x[:, slots], v[:, slots], life[slots], mass[slots] = made[:3], made[3:6], made[6], made[7]
    if len(made) > 8:
        attributes[:, slots] = made[8:]
