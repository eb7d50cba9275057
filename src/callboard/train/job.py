"""``Job``: what each replica is told to train, and how."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from callboard.train.kinds import Loss, Optimizer, weight_of

__all__ = ["Job"]

CLOSE = 1e-4
"""Relative difference of sums that is rounding."""
PRECISIONS = "f32", "bf16"
FUNCTIONS = {
    "optimizer": "a function of the parameters: lambda p: torch.optim.RMSprop(p)",
    "loss": "a function of outputs and targets",
}


@dataclass(frozen=True)
class Job:
    """A model and its training; travels to the hosts of the devices.

    Attributes:
        model: A ``torch.nn.Module``, or a function without arguments that gives one.
        optimizer: See :class:`.OptimizerKind`.
        loss: See :class:`.LossKind`; None: the model gives its loss itself.
        gradient_clip: Largest L2 norm of the whole gradient; None: any.
        schedule: Of the step size: a function that gives its factor for the number of updates before, or a scheduler of
            ``torch.optim.lr_scheduler`` for an optimizer, or a :class:`.ReduceLROnPlateau`; None: the factor is 1. The
            application calls it, see :class:`.Schedule`.
        micro_batch_size: Samples that a replica computes at once; their gradients add up. None: all of its part.
        precision: ``"f32"``: the model's own dtypes. ``"bf16"``: forward and loss under autocast; weights stay as they
            are.
        seed: Of the weights, if ``model`` is a function, and of every random number of a step (dropout).
        deterministic: Refuse operations of torch that may differ from run to run.
        divisor: What the mean loss of samples divides by: a function of a batch with these samples, as ``step`` takes
            it, with NumPy's arrays, that gives a number; those of the parts of a batch must add up to that of the
            batch. None: the number of samples, or see :func:`.weight_of`.
        threads: Threads of torch in each host; None leaves its own number.
        born: Generation of the device when its replica was started, see :class:`.FirstSetup`.
    """

    model: Any
    optimizer: Optimizer
    loss: Loss | None
    gradient_clip: float | None = None
    schedule: Callable[[Any], Any] | None = None
    micro_batch_size: int | None = None
    precision: str = "f32"
    seed: int = 0
    deterministic: bool = False
    divisor: Callable[[Any], Any] | None = None
    threads: int | None = None
    born: int = 0

    def check(self, trainer: str) -> None:
        """Look at everything that does not need torch.

        Raises:
            TypeError, ValueError: A setting that cannot be; the text names it.
        """
        if not callable(self.model):
            raise TypeError(f"{trainer}: model is {self.model!r:.80}; pass a torch.nn.Module, or a function giving one")
        for name in ("optimizer", "loss"):
            value = getattr(self, name)
            known = _is_kind(type(value))
            usable = callable(value) and not (isinstance(value, type) and (name == "loss" or _is_kind(value)))
            if not (known or usable or (name == "loss" and value is None)):
                made = f"an object, {value.__qualname__}(...)" if isinstance(value, type) else FUNCTIONS[name]
                raise TypeError(f"{trainer}: {name} is {value!r:.80}; pass one of cb.{name.title()}Kind, or {made}")
        _check_loss(self.loss, trainer)
        clip = self.gradient_clip
        if clip is not None and not (0 < clip <= sys.float_info.max or clip == math.inf):
            raise ValueError(f"{trainer}: gradient_clip is {self.gradient_clip}; it is a norm above 0, or None")
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(f"{trainer}: micro_batch_size is {self.micro_batch_size}; it is at least 1, or None")
        if self.divisor is not None and not callable(self.divisor):
            raise TypeError(f"{trainer}: divisor is {self.divisor!r:.80}; pass a function of a batch, or None")
        if self.precision not in PRECISIONS:
            raise ValueError(f"{trainer}: precision is {self.precision!r}; use one of {', '.join(PRECISIONS)}")

    def weight_of(self, batch: Any, rows: int) -> float:
        """By what the mean loss of a part of a batch is weighed against those of other parts.

        Args:
            batch: The samples, as arrays of the host.
            rows: Their number.

        Raises:
            ValueError: ``divisor`` gave no weight.
            Exception: What it raised.
        """
        if self.divisor is None:
            return weight_of(self.loss, batch, rows)
        weight = float(self.divisor(batch))
        if not 0 <= weight < math.inf:
            raise ValueError(f"divisor gave {weight} for {rows} samples; it must be at least 0, and finite")
        return weight

    def adds_up(self, whole: float, rows: int, parts: Sequence[tuple[float, int]]) -> bool:
        """Whether the weights of the parts of a batch show that ``divisor`` adds up.

        Args:
            whole, rows: Weight and samples of the batch.
            parts: Weight and samples of each part.

        Returns:
            False if they show nothing: there is one part, or all weights are 0.

        Raises:
            ValueError: They do not add up.
        """
        together = math.fsum(weight for weight, _ in parts)
        if len(parts) < 2 or not (whole or together):
            return False
        if not math.isclose(whole, together, rel_tol=CLOSE):
            sizes = ", ".join(str(count) for _, count in parts[:8]) + (" …" if len(parts) > 8 else "")
            raise ValueError(
                f"divisor gave {whole:g} for a batch of {rows} samples, and {together:g} in all for its parts of "
                f"{sizes} samples; the losses of parts are weighed by it, so it must add up: let it give a sum or a "
                "number of elements, not a mean"
            )
        return True

    def for_hosts(self, threads: int | None) -> Self:
        """The same job with that number of threads, and without the schedule, which stays in the application."""
        return replace(self, threads=threads, schedule=None)


def _check_loss(loss: Any, trainer: str) -> None:
    """Refuse losses whose parts do not add up, and weights that would not be trained."""
    named = getattr(loss, "keywords", None) or {}
    if "sum" in (getattr(loss, "reduction", None), named.get("reduction")):
        raise ValueError(
            f"{trainer}: loss is {loss!r:.80} with reduction='sum'; a step needs the mean over the samples: use "
            "reduction='mean', and multiply the step size by the number of samples of a batch"
        )
    if hasattr(loss, "named_parameters"):
        own = [name for name, one in loss.named_parameters() if one.requires_grad]
        if own:
            raise ValueError(
                f"{trainer}: loss is {loss!r:.80}, whose parameter {own[0]!r} would not be trained; make it a part of "
                "the model, which gives its loss itself then (loss=None)"
            )


def _is_kind(value: type) -> bool:
    return value.__qualname__.startswith(("OptimizerKind.", "LossKind."))
