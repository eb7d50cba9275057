"""``StepStats``: what one step of a trainer gave."""

import statistics
from typing import NamedTuple

import msgspec

__all__ = ["Evaluation", "StepRecovery", "StepStats", "Straggler"]

LATE = 1.25
"""Times the median from which a replica is a straggler."""

PHASES = "noticed", "ready", "state", "joined", "repeated"
"""Of a recovery, in order."""


class Straggler(NamedTuple):
    """The replica that the others wait for.

    Attributes:
        replica: Its number.
        device: The name of its device.
        times: Its time for the gradients, divided by the median of all.
    """

    replica: int
    device: str
    times: float


class StepRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a step went in which a device was lost, in microseconds.

    Attributes:
        noticed: Until the loss was known and the others had let go of the step; from the step's begin.
        ready: Until the devices had their next contexts, and the actors in them were set up.
        state: Until all had the state of one step.
        joined: Until they reached each other.
        repeated: Until the end of the step, with those since the snapshot where there is no copy.
        steps: Steps that were repeated, this one included.
    """

    noticed: int = 0
    ready: int = 0
    state: int = 0
    joined: int = 0
    repeated: int = 0
    steps: int = 1

    @property
    def total(self) -> int:
        """Their sum."""
        return self.noticed + self.ready + self.state + self.joined + self.repeated

    def __str__(self) -> str:
        parts = [f"{name} {getattr(self, name) / 1000:.0f}" for name in PHASES]
        return f"{self.total / 1000:.0f} ms: {', '.join(parts)}"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation gave: means over the samples.

    Attributes:
        step: The step after which it was made.
        loss: Mean loss.
        metrics: The metrics by name.
        samples: Samples that were evaluated.
        micros: Microseconds that it took.
    """

    step: int
    loss: float
    samples: int
    micros: int
    metrics: dict[str, float] = {}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in {"loss": self.loss, **self.metrics}.items())


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a step gave.

    Attributes:
        step: Its number; the first is 1.
        loss: Mean loss of the batch's samples, before the update.
        grad_norm: L2 norm of the whole gradient, before it is clipped.
        lr: Step size of the first group of parameters.
        samples: Samples of the batch.
        step_micros: Microseconds from the call to the update's end.
        skipped: The gradient was not finite, so the weights are as before.
        undone: Steps before this one whose updates are lost, as ``not_finite="roll_back"`` went back to the last
            snapshot; 0 if it did not.
        repeats: How often the step began again because a device was lost.
        recovery: Where the time went, if it began again or devices had to be waited for; else None.
        replica_micros: Microseconds that each replica took for its gradients.
        devices: The names of their devices.
        tokens: Tokens of the batch: elements of its first array, if that has whole numbers and more than one axis;
            None: the batch is none of tokens.
        flops: Operations of the forward and backward pass, if they are known.
        peak_flops: Operations per second that the devices together can do, if it was given.
    """

    step: int
    loss: float
    grad_norm: float
    lr: float
    samples: int
    step_micros: int
    skipped: bool = False
    undone: int = 0
    repeats: int = 0
    recovery: StepRecovery | None = None
    replica_micros: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    tokens: int | None = None
    flops: float | None = None
    peak_flops: float | None = None

    @property
    def samples_per_second(self) -> float:
        """Samples of the batch by the step's time."""
        return self.samples * 1e6 / max(1, self.step_micros)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of the batch by the step's time; None if it has none."""
        return None if self.tokens is None else self.tokens * 1e6 / max(1, self.step_micros)

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization: the operations of the step, divided by those that the devices can do in its time.

        None if the trainer was not given ``peak_flops``.
        """
        if self.flops is None or self.peak_flops is None:
            return None
        return self.flops * 1e6 / max(1, self.step_micros) / self.peak_flops

    @property
    def straggler(self) -> Straggler | None:
        """The slowest replica, if it took 1.25 times the median or more; None if there is none."""
        if len(self.replica_micros) < 2:
            return None
        slowest = max(range(len(self.replica_micros)), key=self.replica_micros.__getitem__)
        times = self.replica_micros[slowest] / max(1, statistics.median_low(self.replica_micros))
        name = self.devices[slowest] if slowest < len(self.devices) else ""
        return Straggler(slowest, name, times) if times >= LATE else None
