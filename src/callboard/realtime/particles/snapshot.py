"""``ParticleSnapshot``: particles on the host."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from callboard.realtime.particles.config import Attractor, ParticleConfig, Spring

__all__ = ["ParticleSnapshot"]


class ParticleSnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The living particles after a step. Its arrays are read only.

    Attributes:
        steps: Steps since the start.
        time: Seconds since the start.
        positions, velocities: f32 ``[particles, 3]``.
        lives: Seconds that each has left; infinite where it has no end.
        masses: f32 ``[particles]``.
        attributes: Of the configuration, by name: f32 ``[particles]`` each.
        slots: Where each is; a particle keeps its slot while it lives.
        emitted: Particles that emitters have made.
        suppressed: Particles that emitters could not make, because no slot was free.
    """

    steps: int
    time: float
    positions: Any
    velocities: Any
    lives: Any
    masses: Any
    attributes: dict[str, Any]
    slots: Any
    emitted: int = 0
    suppressed: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def kinetic(self) -> float:
        """Sum of ``m v^2 / 2``."""
        return float((self.masses[:, None] * self.velocities.astype("f8") ** 2).sum() / 2)

    @property
    def momentum(self) -> NDArray[np.float64]:
        """Sum of ``m v``."""
        return np.asarray((self.masses[:, None] * self.velocities.astype("f8")).sum(0))

    def energy(self, config: ParticleConfig) -> float:
        """Kinetic energy, and potential energy in gravity, springs, attractors and contacts; other forces have none."""
        x = self.positions.astype("f8")
        energy = self.kinetic - float((self.masses * (x @ np.array(config.gravity))).sum())
        for field in config.fields:
            square = ((x - np.array(getattr(field, "center", (0, 0, 0)))) ** 2).sum(1)
            if isinstance(field, Spring):
                energy += field.strength * float(square.sum()) / 2
            elif isinstance(field, Attractor):
                energy -= field.strength * float((1 / np.sqrt(square + field.softening**2)).sum())
        if config.contact is not None:
            near = KDTree(x).query_pairs(config.contact.diameter, output_type="ndarray")
            overlap = config.contact.diameter - np.linalg.norm(x[near[:, 0]] - x[near[:, 1]], axis=1)
            energy += config.contact.stiffness * float((overlap**2).sum()) / 2
        return energy
