"""``Stage``: a part of the model beside its device, with its optimizer and the passes that wait for their gradients."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.train.job import Job
from callboard.train.kinds import optimizer_of
from callboard.train.pipeline.backward import input_gradients, whole
from callboard.train.pipeline.splitting import StageModule
from callboard.train.replicas.buckets import Buckets
from callboard.train.replicas.rates import Groups
from callboard.train.replicas.trained import Trained
from callboard.train.states import State, pack, unpack

__all__ = ["Stage"]


class Passed(NamedTuple):
    """A forward pass whose gradients are wanted.

    Attributes:
        inputs: What the stage took, in order.
        roots: What it gave, in order: tensors, and other values.
    """

    inputs: list[Any]
    roots: list[Any]


class Stage:
    """A part of the model.

    Args:
        number: Its number.
        part: Its module; moved to the device.
        job: How it is trained.
        device: A torch device.
    """

    def __init__(self, number: int, part: StageModule, job: Job, device: Any) -> None:
        self.number = number
        self.ports = part.ports
        self.module = part.module.to(device)
        self._graphs = part.graphs
        self._job = job
        self._device = device
        self.parameters = [one for one in self.module.parameters() if one.requires_grad]
        self._trained = Trained(self.module, self.parameters)
        self._buffers = self._trained.buffers
        self._buckets = Buckets(self.parameters)
        self._optimizer = optimizer_of(job.optimizer, self.parameters) if self.parameters else None
        self.rates = [group["lr"] for group in self._optimizer.param_groups] if self._optimizer else []
        self._groups = Groups.of(self._optimizer)
        self.updates = 0
        self._before: list[Any] | None = None  # buffers at the beginning of the step that is open
        self._passed: dict[int, Passed] = {}
        self._rest: dict[int, Callable[[], None]] = {}

    # -- a step --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a step, from the beginning if it was begun before."""
        self.abandon()
        self._before = [buffer.clone() for buffer in self._buffers]
        self._buckets.zero()
        self._trained.begin()

    def turn(self, training: bool) -> None:
        """Have the module be in training mode, or in that for evaluation.

        Raises:
            TypeError: Its calls were recorded, and it makes others in evaluation.
        """
        if self.module.training == training:
            return
        if self._graphs is not None:
            if self._graphs[training] is None:
                raise TypeError(
                    "the model's forward makes other calls in evaluation than in training; to evaluate it, pass a list "
                    "of stages, each a torch.nn.Module"
                )
            self.module.graph = self._graphs[training]
        self._trained.turn(training)

    def abandon(self) -> None:
        """Forget the step that is open: buffers such as running means are as before it."""
        self._passed.clear()
        self._rest.clear()
        self._trained.settle()
        for buffer, value in zip(self._buffers, self._before or (), strict=False):
            buffer.copy_(value)
        self._before = None

    def forward(self, micro: int, args: list[Any], named: dict[str, Any], *, keep: bool) -> Any:
        """Call the module.

        Args:
            micro: Number of the micro-batch.
            args, named: Arguments; leaves that require a gradient, where one is wanted.
            keep: What the backward pass needs.
        """
        outputs = self.module(*args, **named)
        if keep:
            self._passed[micro] = Passed([*args, *named.values()], [])
        return outputs

    def backward_from(self, micro: int, roots: list[Any]) -> None:
        """The backward pass of a micro-batch begins at these."""
        self._passed[micro].roots.extend(roots)

    def backward(self, micro: int, gradients: list[Any], so_far: list[Any], *, split: bool) -> list[Any]:
        """The gradients of the inputs.

        Args:
            micro: Number of the micro-batch.
            gradients: For each root; None if it has none. Empty for the loss.
            so_far: For each input, what later stages that took it gave.
            split: Leave the gradients of the weights to :meth:`weights`.
        """
        inputs, roots = self._passed.pop(micro)
        if not gradients and len(roots) == 1:  # the loss
            gradients = [roots[0].new_ones(())]
        pairs = [*zip(roots, gradients, strict=True), *zip(inputs, so_far, strict=True)]
        pairs = [(root, gradient) for root, gradient in pairs if gradient is not None and _follows(root)]
        starts, given = [root for root, _ in pairs], [gradient for _, gradient in pairs]
        leaves = [one for one in inputs if _follows(one)]
        if split:
            found, rest = input_gradients(starts, given, leaves)
            if rest is not None:
                self._rest[micro] = rest
        else:
            found = whole(starts, given, leaves)
        of = iter(found)
        return [next(of) if _follows(one) else None for one in inputs]

    def weights(self, micro: int) -> None:
        """The second part of a backward pass."""
        rest = self._rest.pop(micro, None)
        if rest is not None:
            rest()

    def norms(self) -> list[float]:
        """The norm of each weight's gradient."""
        import torch

        self._buckets.collect()
        gradients = [one.grad.float() if one.dtype.itemsize < 4 else one.grad for one in self.parameters]
        foreach: Any = torch  # its own clip_grad_norm_ uses this function, too
        norms = foreach._foreach_norm(gradients) if gradients else []
        return [float(norm) for norm in torch.stack([one.double() for one in norms]).tolist()] if norms else []

    def update(self, settings: list[dict[str, Any]], scale: float) -> None:
        """Take the step.

        Args:
            settings: Of each group of parameters, with the step size.
            scale: Of the gradient.
        """
        self._trained.settle()
        self._before = None
        self.updates += 1
        if self._optimizer is not None:
            for group, own in zip(self._optimizer.param_groups, settings, strict=True):
                group.update(own)
            self._buckets.scale(scale)
            self._trained.without(self._trained.uses())
            self._optimizer.step()

    # -- weights -------------------------------------------------------------------------------------------------------

    def groups(self) -> Groups:
        """The optimizer as it was before the first update."""
        return self._groups.beginning_with(map(float, self.rates))

    def state(self, step: int, share: Callable[[Any], Any]) -> State:
        """Weights, the optimizer's state and what belongs to them, after the last step that is complete."""
        self.abandon()
        rule = self._optimizer.state_dict() if self._optimizer is not None else None
        return pack((self.module.state_dict(), rule, self.rates), step, self.updates, share, self._device)

    def load(self, state: State) -> None:
        """Take a state."""
        self.abandon()
        module, rule, rates = unpack(state)
        self.module.load_state_dict(module)
        if self._optimizer is not None:
            self._optimizer.load_state_dict(rule)
        self.rates = rates
        self.updates = state.updates


def _follows(value: Any) -> bool:
    """Gradients go to it."""
    return bool(getattr(value, "requires_grad", False))
