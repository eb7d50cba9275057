"""The loss: of whole outputs, or the cross entropy of logits whose classes are cut over the shards."""

from collections.abc import Callable
from typing import Any

from callboard.train.kinds import Loss, LossKind, class_numbers, loss_of
from callboard.train.tensor.flow import Flow

__all__ = ["loss_of_cut"]

IGNORED = -100
"""The target that counts for nothing, as torch has it."""


def loss_of_cut(kind: Loss, flow: Flow, device: Any) -> Callable[[Any, Any], Any]:
    """The function of the model's outputs, this shard's classes if they are cut, and the targets: the mean loss."""
    if flow.classes is None:
        whole = loss_of(kind, device)

        def checked(outputs: Any, targets: Any) -> Any:
            flow.check_end()
            return whole(outputs, targets)

        return checked
    ((start, stop),) = flow.classes.pieces[flow.exchange.rank]
    classes = flow.classes.pieces[-1][-1][1]
    smoothing = kind.label_smoothing if isinstance(kind, LossKind.CrossEntropy) else 0.0

    def loss(logits: Any, targets: Any) -> Any:
        import torch

        if logits.ndim < 2 or logits.shape[1] != stop - start:
            raise ValueError(
                f"the model's output has the shape {list(logits.shape)}; behind the 'vocabulary' layer "
                f"{flow.vocabulary!r}, its second axis has the classes (here {stop - start} of {classes} on this "
                "device)"
            )
        scores = logits.movedim(1, -1).flatten(0, -2)
        scores = scores if scores.dtype == torch.float64 else scores.float()
        wanted = class_numbers(targets).reshape(-1)
        counted = wanted != IGNORED
        if bool((counted & ((wanted < 0) | (wanted >= classes))).any()):
            raise IndexError(
                f"the targets are from {int(wanted.min())} to {int(wanted.max())}; there are {classes} classes"
            )
        highest = flow.exchange.all_reduce(scores.detach().max(1).values, "max")
        shifted = scores - highest[:, None]
        here = (wanted >= start) & (wanted < stop)
        target = shifted.gather(1, torch.where(here, wanted - start, 0)[:, None])[:, 0] * here
        total, target, every = flow.sum(torch.stack([shifted.exp().sum(1), target, shifted.sum(1)]))
        nll = total.log() - target
        if smoothing:
            nll = (1 - smoothing) * nll + smoothing * (total.log() - every / classes)
        flow.close_features()
        if isinstance(kind, LossKind.WeightedCrossEntropy):
            weights = nll.new_tensor(kind.weights)[wanted.clamp_min(0)]
            return (nll * weights * counted).sum() / max(1, wanted.numel())
        return (nll * counted).sum() / counted.sum()

    return loss
