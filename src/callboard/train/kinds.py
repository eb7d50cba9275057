"""``OptimizerKind`` and ``LossKind``: the usual update rules and losses by name, for jobs that travel to devices."""

import copy
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from callboard.train.replicas.eager import as_eager, spare_compiler

__all__ = [
    "Loss",
    "LossKind",
    "Optimizer",
    "OptimizerKind",
    "class_numbers",
    "loss_in",
    "loss_of",
    "optimizer_of",
    "refuse",
    "share_of",
    "weight_of",
]


class OptimizerKind:
    """The update rules by name; any other is a function: ``optimizer=lambda parameters: torch.optim.RMSprop(...)``."""

    @dataclass(frozen=True)
    class Sgd:
        """:class:`torch.optim.SGD`.

        Attributes:
            lr: Step size, at least 0.
            momentum: Share of the last update that is kept, in [0, 1).
            weight_decay: L2 penalty, at least 0.
            nesterov: Nesterov's momentum.
        """

        lr: float
        momentum: float = 0.0
        weight_decay: float = 0.0
        nesterov: bool = False

        def __post_init__(self) -> None:
            _at_least_zero(self, "lr", "weight_decay")
            _below_one(self, "momentum")
            if self.nesterov and not self.momentum:
                raise ValueError("OptimizerKind.Sgd: nesterov needs a momentum above 0")

    @dataclass(frozen=True)
    class AdamW:
        """:class:`torch.optim.AdamW`: Adam with decoupled weight decay.

        Attributes:
            lr: Step size, at least 0.
            beta1, beta2: Decay of the means of gradients and of their squares, in [0, 1).
            eps: Added to the denominator, at least 0.
            weight_decay: Decay of the weights, at least 0.
        """

        lr: float = 1e-3
        beta1: float = 0.9
        beta2: float = 0.999
        eps: float = 1e-8
        weight_decay: float = 0.01

        def __post_init__(self) -> None:
            _at_least_zero(self, "lr", "eps", "weight_decay")
            _below_one(self, "beta1", "beta2")


class LossKind:
    """The losses by name, each the mean over the samples; any other is a function of outputs and targets.

    The function's result must be a mean over the samples, as these are: a step weighs the parts of a batch by their
    numbers of samples. The means of torch's cross entropies leave out ignored targets, and divide by the weights of
    classes: parts are weighed by these then.
    """

    @dataclass(frozen=True)
    class Mse:
        """Mean squared error."""

    @dataclass(frozen=True)
    class CrossEntropy:
        """Cross entropy of logits ``[n, classes]`` and class numbers ``[n]`` (whole numbers).

        Attributes:
            label_smoothing: In [0, 1].
        """

        label_smoothing: float = 0.0

        def __post_init__(self) -> None:
            if not 0 <= self.label_smoothing <= 1:
                raise ValueError(
                    f"LossKind.CrossEntropy: label_smoothing is {self.label_smoothing}; it is a number from 0 to 1"
                )

    @dataclass(frozen=True)
    class WeightedCrossEntropy:
        """Cross entropy with a weight for each class; the mean is over the samples, not over their weights.

        So the losses of the parts of a batch add up to that of the whole one. (:class:`torch.nn.CrossEntropyLoss`
        divides by the sum of the weights, which differs from part to part.)

        Attributes:
            weights: One for each class, finite and at least 0.
        """

        weights: tuple[float, ...]

        def __init__(self, weights: Sequence[float]) -> None:
            given = list(weights)
            if not given or not all(0 <= weight <= sys.float_info.max for weight in given):
                raise ValueError(
                    f"LossKind.WeightedCrossEntropy: weights are {given!r:.80}; give each class a number that is at "
                    "least 0, and finite"
                )
            object.__setattr__(self, "weights", tuple(map(float, given)))


Optimizer = OptimizerKind.Sgd | OptimizerKind.AdamW | Callable[[Any], Any]
Loss = LossKind.Mse | LossKind.CrossEntropy | LossKind.WeightedCrossEntropy | Callable[[Any, Any], Any]


def optimizer_of(kind: Optimizer, parameters: list[Any]) -> Any:
    """The optimizer of torch for these parameters.

    Raises:
        TypeError: A function gave something else than an optimizer, or one whose step needs a closure (LBFGS).
    """
    import torch

    spare_compiler()
    made: Any
    match kind:
        case OptimizerKind.Sgd():
            made = torch.optim.SGD(parameters, kind.lr, kind.momentum, 0.0, kind.weight_decay, kind.nesterov)
        case OptimizerKind.AdamW():
            betas = kind.beta1, kind.beta2
            made = torch.optim.AdamW(parameters, kind.lr, betas, kind.eps, kind.weight_decay)
        case _:
            made = kind(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer gave {made!r:.80}; it must give a torch.optim.Optimizer for the parameters it gets")
    closure = inspect.signature(type(made).step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise TypeError(
            f"optimizer gave {type(made).__name__}, whose step computes the loss again by a closure; a step here "
            "computes the gradient once: use AdamW, SGD or another one whose step needs no closure"
        )
    return as_eager(made)


def refuse(optimizer: Any, names: Sequence[str], trainer: str, why: str) -> None:
    """Refuse optimizers whose update needs what no device has.

    Args:
        optimizer: The optimizer.
        names: Classes that are refused.
        trainer: What refuses them.
        why: What their update depends on, for the error.

    Raises:
        TypeError: It is one of these.
    """
    kind = next((one.__name__ for one in type(optimizer).__mro__ if one.__name__ in names), None)
    if kind is not None:
        raise TypeError(
            f"{trainer}: the update of {kind} depends on {why}; use AdamW, SGD or another one that updates each "
            "element by itself"
        )


def loss_of(kind: Loss, device: Any = None) -> Callable[[Any, Any], Any]:
    """The function of outputs and targets that gives the mean loss, a tensor without axes.

    Args:
        kind: The loss; of a ``torch.nn.Module``, a copy is used.
        device: Where outputs and targets are; a module's tensors, such as weights of classes, go there. None: the host.
    """
    from torch.nn import Module, functional

    match kind:
        case LossKind.Mse():
            return functional.mse_loss
        case LossKind.CrossEntropy():
            return lambda outputs, targets: functional.cross_entropy(
                outputs, class_numbers(targets), label_smoothing=kind.label_smoothing
            )
        case LossKind.WeightedCrossEntropy():
            return lambda outputs, targets: (
                functional.cross_entropy(
                    outputs, class_numbers(targets), weight=outputs.new_tensor(kind.weights), reduction="sum"
                )
                / max(1, targets.numel())
            )
    return copy.deepcopy(kind).to(device) if isinstance(kind, Module) else kind


def class_numbers(targets: Any) -> Any:
    """Targets of a cross entropy: whole numbers of any dtype as i64, probabilities as they are."""
    return targets if targets.is_floating_point() else targets.long()


def weight_of(kind: Loss | None, batch: Any, rows: int) -> float:
    """What the mean of a loss divides by, up to a factor that is the same for all parts of a batch.

    Args:
        kind: The loss.
        batch: With targets as an array of the host.
        rows: Its samples.

    Returns:
        The number of samples; for torch's cross entropies of class numbers that of the targets that are not ignored, or
        the weights of their classes.
    """
    found = None if kind is None else _ignored_and_weights(kind)
    targets = batch[1] if found is not None and isinstance(batch, tuple) and len(batch) == 2 else None
    if found is None or not isinstance(targets, np.ndarray) or targets.dtype.kind == "f":
        return rows
    ignored, weights = found
    counted = targets[targets != ignored]
    if weights is None:
        return int(counted.size)
    of_classes = np.asarray(weights.detach().cpu(), "f8")
    if counted.size and not 0 <= counted.min() <= counted.max() < len(of_classes):
        return rows  # the loss refuses them
    return float(of_classes[counted.astype("i8")].sum())


def share_of(weight: float, total: float) -> float:
    """The share of a part in the mean of the whole; NaN for a whole without weight, whose mean is not defined."""
    return weight / total if total else math.nan


def _ignored_and_weights(kind: Loss) -> tuple[int, Any] | None:
    """The target that torch's cross entropy ignores, and the weights of its classes; None: another loss."""
    torch: Any = sys.modules.get("torch")
    if isinstance(kind, LossKind.CrossEntropy):
        return -100, None
    if torch is None:
        return None
    if type(kind) in (torch.nn.CrossEntropyLoss, torch.nn.NLLLoss):
        return kind.ignore_index, kind.weight  # type: ignore[union-attr]
    named = kind.keywords if isinstance(kind, partial) and not kind.args else {}
    function = kind.func if isinstance(kind, partial) and not kind.args else kind
    if function in (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss):
        return named.get("ignore_index", -100), named.get("weight")
    return None


def loss_in(outputs: Any) -> Any:
    """The loss that a model gave itself: its output, or what that has as ``loss``, an attribute or a key."""
    return outputs["loss"] if isinstance(outputs, dict) and "loss" in outputs else getattr(outputs, "loss", outputs)


def _at_least_zero(kind: Any, *names: str) -> None:
    for name in names:
        value = getattr(kind, name)
        if not 0 <= value <= sys.float_info.max:
            raise ValueError(f"{type(kind).__qualname__}: {name} is {value}; it must be at least 0, and finite")


def _below_one(kind: Any, *names: str) -> None:
    for name in names:
        value = getattr(kind, name)
        if not 0 <= value < 1:
            raise ValueError(f"{type(kind).__qualname__}: {name} is {value}; it must be at least 0 and less than 1")
