"""A network as cuDNN executes it: in one piece, or layer by layer where numbers are dropped between the layers."""

from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.dnn.legacy import Destroyed
from callboard.backends.cuda.dnn.rnn.descriptors import Descriptors
from callboard.backends.cuda.dnn.rnn.placing import WeightPlacing, slots_of
from callboard.core.errors import UnsupportedOp
from callboard.kernel.dnn.rnn.messages import Recurrent, Training
from callboard.kernel.dnn.rnn.params import RnnParams
from callboard.kernel.dnn.rnn.reserve import HEADER

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["Kept", "Stage", "Stages", "aligned"]

ALIGNED = 256
"""Bytes: where parts of a workspace and of a reserve begin."""


class Kept(NamedTuple):
    """Offsets in the reserve of the data a stage saves for the backward pass.

    Attributes:
        reserve: cuDNN's own.
        out, passed, mask: Output of the stage, the part of it that is passed on, and its mask; 0 for the last stage.
    """

    reserve: int
    out: int
    passed: int
    mask: int


class Stage(NamedTuple):
    """One call of cuDNN.

    Attributes:
        network: Descriptors of its network.
        placing: Placement of its weights.
        states, cells: Bytes from the beginning of all states to its own.
        kept: Part of the reserve that belongs to the stage.
    """

    network: Descriptors
    placing: WeightPlacing
    states: int
    cells: int
    kept: Kept


class Stages:
    """All of them, with a workspace.

    Args:
        library: Library that owns the workspace.
        op: The message, with placeholders.
        beside: Further bytes of the workspace.

    Attributes:
        all: The stages, in the order of the layers.
        weights, gradients, work, more: Addresses in the workspace: of weights in cuDNN's layout, of their gradients, of
            cuDNN's own workspace, of the further bytes.

    Raises:
        UnsupportedOp: cuDNN has no such network.
        OutOfMemory
    """

    def __init__(self, library: "CudaDnn", op: Recurrent[Any], beside: int = 0) -> None:
        self._library, self._destroyed = library, Destroyed()
        self._room = library.workspace.lease(ALIGNED)
        try:
            self.all = self._made(op)
            nbytes = max(stage.placing.nbytes for stage in self.all)
            work = max(stage.network.sizes.work for stage in self.all)
            parts = [nbytes, nbytes, work, max(beside, 1)]
            old, self._room = self._room, library.workspace.lease(sum(map(aligned, parts)))
            library.workspace.leave(old)
        except BaseException:  # any exception: release the parts made so far
            self.close()
            raise
        at = self._room.memory.address
        self.weights, self.gradients, self.work, self.more = (at + sum(map(aligned, parts[:i])) for i in range(4))

    def close(self) -> None:
        """Free descriptors and workspace."""
        self._destroyed.close()
        self._library.workspace.leave(self._room)

    def _made(self, op: Recurrent[Any]) -> list[Stage]:
        params, library, training = op.params, self._library, isinstance(op, Training)
        split = isinstance(op, Training) and op.dropout > 0 and params.num_layers > 1
        (steps, batch), size = op.sequences(), op.x.dtype.itemsize
        out = op.result().nbytes // size
        at, found = HEADER, list[Stage]()
        for layer in range(params.num_layers) if split else [0]:
            part = _layer(params, layer) if split else params
            network = Descriptors(library.cudnn, op, part, training, self._destroyed)
            slots = slots_of(params, layer if split else None)
            placing = WeightPlacing(library.device.driver, network, slots, self._room.memory.address)
            between = split and layer < params.num_layers - 1
            sizes = [network.sizes.reserve, *([out * size, out * size, out] if between else [0, 0, 0])]
            kept = Kept(*(at + sum(map(aligned, sizes[:i])) for i in range(4)))
            at += sum(map(aligned, sizes))
            cells = layer * params.directions * batch * size
            found.append(Stage(network, placing, cells * params.state_size, cells * params.hidden_size, kept))
        if isinstance(op, Training) and at > op.reserved().nbytes:
            raise UnsupportedOp(
                f"cuda, {type(op).__struct_config__.tag}: cuDNN {library.cudnn.version} needs a reserve of {at} bytes "
                f"for {params}, {steps} steps of {batch} sequences, and it has {op.reserved().nbytes}"
            )
        return found


def _layer(params: RnnParams, layer: int) -> RnnParams:
    """A layer as a network."""
    width = params.output_size if layer else params.input_size
    return RnnParams(params.mode, width, params.hidden_size, 1, params.direction, params.proj_size, params.bias)


def aligned(nbytes: int) -> int:
    """Round a number of bytes up to the start of the next part."""
    return -(-nbytes // ALIGNED) * ALIGNED
