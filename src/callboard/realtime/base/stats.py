"""``SimulationStats``: what a simulation did, and what losses have cost."""

import msgspec

__all__ = ["SimulationStats"]


class SimulationStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures since the start.

    Attributes:
        steps: Steps since the start or the last reset.
        time: Seconds of simulated time.
        snapshot: Step of the last snapshot: a loss now costs ``steps - snapshot`` steps.
        snapshots: Snapshots taken.
        losses: How often the state was lost with a context, and brought back.
        lost_frames: Steps that were taken again because of that.
        in_flight: Commands that are not answered.
        drawn: Frames of :meth:`.Simulation.run`.
        skipped: Frames that were simulated and not drawn, to keep up with time.
        dropped: Frames that were not simulated, because even that was too slow.
        budget: Part of a frame's time that the last frames took; above 1 they are late.
    """

    steps: int
    time: float
    snapshot: int
    snapshots: int
    losses: int
    lost_frames: int
    in_flight: int
    drawn: int
    skipped: int
    dropped: int
    budget: float
