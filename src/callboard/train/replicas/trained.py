"""``Trained``: a module in training: the modes of its parts, its buffers, and the weights that a pass has used."""

from collections.abc import Sequence
from typing import Any

__all__ = ["Trained", "into_training"]


def into_training(module: Any) -> Any:
    """The same module in training mode.

    Parts in evaluation mode inside a module in training mode stay so, as in a loop of torch that has called their
    ``eval()`` (BatchNorm with fixed means). A module that is in evaluation mode itself is trained as a whole.

    Raises:
        TypeError: The module is not complete: it has lazy layers.
    """
    lazy = [name for name, part in module.named_modules() if getattr(part, "has_uninitialized_params", bool)()]
    if lazy:
        raise TypeError(
            f"the lazy layer {lazy[0]!r} has no weights yet, and optimizers need them; call the model once with some "
            "samples before it is passed, or in the function that gives it"
        )
    fixed = [part for part in module.modules() if module.training and not part.training]
    module.train()
    for part in fixed:
        part.training = False
    return module


class Trained:
    """What changes in a module besides its weights, and which of these get a gradient.

    Args:
        module: On its device; gets into training mode.
        parameters: Those that are trained.

    Attributes:
        buffers: Its buffers, the same tensors as long as it is trained.
    """

    def __init__(self, module: Any, parameters: Sequence[Any]) -> None:
        self._module = into_training(module)
        self._parameters = parameters
        self._used = used = set[int]()
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(lambda one: used.add(id(one)))
        self._modes = [(part, part.training) for part in module.modules()]
        self._slots = [
            (part, name, buffer)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]
        self.buffers = list(module.buffers())

    def begin(self) -> None:
        """The passes of a step begin."""
        self._used.clear()

    def uses(self) -> list[float]:
        """For each parameter, after its gradients were collected: 1 if a pass of this step has used it, else 0."""
        return [float(id(one) in self._used or bool(one.grad.any())) for one in self._parameters]

    def without(self, uses: Sequence[float]) -> None:
        """Have the optimizer pass over parameters that were not used, as torch does: they have no gradient.

        Args:
            uses: Of all devices, added up.
        """
        for parameter, count in zip(self._parameters, uses, strict=True):
            if not count:
                parameter.grad = None

    def turn(self, training: bool) -> None:
        """Into training or evaluation mode."""
        if training:
            for part, mode in self._modes:
                part.training = mode
        else:
            self._module.eval()

    def settle(self) -> None:
        """Bring values that ``forward`` has put in place of buffers (``self.mean = ...``) into these.

        Raises:
            TypeError: One has another shape than the buffer.
        """
        for part, name, buffer in self._slots:
            now = part._buffers.get(name)
            if now is buffer:
                continue
            if now is None or now.shape != buffer.shape:
                what = "None" if now is None else f"a tensor of shape {list(now.shape)}"
                raise TypeError(
                    f"the buffer {name!r} of {type(part).__name__} became {what}; in training, it keeps its shape "
                    f"{list(buffer.shape)}"
                )
            buffer.copy_(now.detach())
            part._buffers[name] = buffer
