"""``StepStats``: what one step of a trainer gave."""

import msgspec

__all__ = ["StepStats"]


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
        repeats: How often the step began again because a device was lost.
        replica_micros: Microseconds that each replica took for its gradients; the largest is the straggler's.
    """

    step: int
    loss: float
    grad_norm: float
    lr: float
    samples: int
    step_micros: int
    skipped: bool = False
    repeats: int = 0
    replica_micros: tuple[int, ...] = ()

    @property
    def samples_per_second(self) -> float:
        """Samples of the batch by the step's time."""
        return self.samples * 1e6 / max(1, self.step_micros)
