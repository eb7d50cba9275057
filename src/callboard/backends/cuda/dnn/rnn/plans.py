"""Plans of the recurrent networks on a GPU."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.rnn.dropping import Dropping
from callboard.backends.cuda.dnn.rnn.stages import Stage, Stages, aligned
from callboard.backends.cuda.readback import CudaStatus
from callboard.core.errors import UnsupportedOp
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.core.operand import Operand
from callboard.kernel.dnn.rnn.messages import Recurrent, RnnBackward, RnnForward, RnnForwardTraining
from callboard.kernel.dnn.rnn.reserve import FILLED, USED, check_filled

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream
    from callboard.core.backend import Memory

__all__ = ["BackwardPlan", "ForwardPlan", "ForwardTrainingPlan"]

ALIGNMENT = 16
"""Bytes that cuDNN's products read at once."""
WORD = 4
"""Bytes: of the reserve's state."""


def refuses(op: Recurrent[Any]) -> str | None:
    """Arrays have no gaps."""
    for leaf in info_of(type(op)).leaves(op):
        if isinstance(leaf.value, Operand) and not leaf.value.layout.contiguous:
            return f"{leaf.name} is {leaf.value.layout!r}, with gaps or in another order: pass dev.copy({leaf.name})"
    return None


class RnnPlan:
    """Base of the three plans.

    Args:
        library: The library.
        op: The message, with placeholders.
        beside: Further bytes of the workspace.
    """

    def __init__(self, library: "CudaDnn", op: Recurrent[Any], beside: int = 0) -> None:
        self.tag, self.driver = type(op).__struct_config__.tag, library.device.driver
        self.stages = Stages(library, op, beside)

    def close(self) -> None:
        self.stages.close()

    def begin(self, lengths: Sequence[int] | None, **addresses: int | None) -> None:
        """Check addresses, and set the lengths of this call."""
        for name, address in addresses.items():
            if address is not None and address % ALIGNMENT:
                raise UnsupportedOp(
                    f"cuda, {self.tag}: {name} starts {address % ALIGNMENT} bytes after a multiple of {ALIGNMENT}; "
                    f"pass dev.copy({name})"
                )
        if lengths:
            for stage in self.stages.all:
                stage.network.set_lengths(lengths)

    def weights(self, stream: "CudaStream", stage: Stage, packed: int) -> int:
        """Return the weights of a stage in cuDNN's layout."""
        if stage.placing.direct:
            return packed
        stage.placing.bring(stream.native, packed, self.stages.weights)
        return self.stages.weights

    def clear(self, stream: "CudaStream", address: int, nbytes: int) -> None:
        self.driver.check(self.driver.memset_8(address, 0, nbytes, stream.native), "cuMemsetD8Async")

    def mark(self, stream: "CudaStream", reserve: int, word: int) -> None:
        """Mark the state of a reserve in its header."""
        self.driver.check(self.driver.memset_32(reserve, word, 1, stream.native), "cuMemsetD32Async")


@plans(RnnForward, refuses=refuses)
class ForwardPlan(RnnPlan):
    """Called with ``(stream, x, weights, hx, cx, lengths, y, h_n, c_n)``."""

    def __init__(self, library: "CudaDnn", op: RnnForward) -> None:
        super().__init__(library, op)

    def __call__(
        self,
        stream: "CudaStream",
        x: int,
        weights: int,
        hx: int | None,
        cx: int | None,
        lengths: Sequence[int] | None,
        y: int,
        h_n: int,
        c_n: int | None,
    ) -> None:
        self.begin(lengths, x=x, weights=weights, hx=hx, cx=cx, y=y, h_n=h_n, c_n=c_n)
        (stage,) = self.stages.all
        packed = self.weights(stream, stage, weights)
        stage.network.forward(stream, x, y, hx, h_n, cx, c_n, packed, self.stages.work, None)


@plans(RnnForwardTraining, refuses=refuses)
class ForwardTrainingPlan(RnnPlan):
    """Called with ``(stream, x, weights, hx, cx, lengths, y, h_n, c_n, reserve, seed, offset)``."""

    def __init__(self, library: "CudaDnn", op: RnnForwardTraining) -> None:
        super().__init__(library, op)
        self._dropping = _dropping(library, op, len(self.stages.all))

    def __call__(
        self,
        stream: "CudaStream",
        x: int,
        weights: int,
        hx: int | None,
        cx: int | None,
        lengths: Sequence[int] | None,
        y: int,
        h_n: int,
        c_n: int | None,
        reserve: int,
        seed: int,
        offset: int,
    ) -> None:
        self.begin(lengths, x=x, weights=weights, hx=hx, cx=cx, y=y, h_n=h_n, c_n=c_n, reserve=reserve)
        last = len(self.stages.all) - 1
        for number, stage in enumerate(self.stages.all):
            kept, out = stage.kept, y if number == last else reserve + stage.kept.out
            stage.network.forward(
                stream,
                x,
                out,
                _moved(hx, stage.states),
                _moved(h_n, stage.states),
                _moved(cx, stage.cells),
                _moved(c_n, stage.cells),
                self.weights(stream, stage, weights),
                self.stages.work,
                reserve + kept.reserve,
            )
            if self._dropping is not None and number < last:
                x = reserve + kept.passed
                self._dropping.forward(stream, number, out, x, reserve + kept.mask, seed, offset)
        self.mark(stream, reserve, FILLED)


@plans(RnnBackward, refuses=refuses)
class BackwardPlan(RnnPlan):
    """Called with ``(stream, x, weights, hx, cx, lengths, y, reserve, dy, dh_n, dc_n, dx, dweights, dhx, dcx)``."""

    def __init__(self, library: "CudaDnn", op: RnnBackward) -> None:
        self._out, self._dx, self._dw = (array.nbytes for array in (op.result(), op.x, op.weights))
        self._between = aligned(self._out)
        super().__init__(library, op, 2 * self._between)
        self._padded = op.lengths is not None and op.layout != "packed"
        self._library = library
        self._memory: Memory | None = None
        try:
            self._dropping = _dropping(library, op, len(self.stages.all))
            self._memory = library.device.allocate(ALIGNMENT)
        except BaseException:  # any exception: release the parts made so far
            self.close()
            raise

    def __call__(
        self,
        stream: "CudaStream",
        x: int,
        weights: int,
        hx: int | None,
        cx: int | None,
        lengths: Sequence[int] | None,
        y: int,
        reserve: int,
        dy: int | None,
        dh_n: int | None,
        dc_n: int | None,
        dx: int,
        dweights: int,
        dhx: int,
        dcx: int | None,
    ) -> CudaStatus:
        self.begin(
            lengths, x=x, weights=weights, hx=hx, cx=cx, y=y, reserve=reserve, dy=dy, dh_n=dh_n, dc_n=dc_n, dx=dx,
            dweights=dweights, dhx=dhx, dcx=dcx,
        )  # fmt: skip
        assert self._memory is not None
        word, native = self._memory.address, stream.native
        self.driver.check(self.driver.memcpy_dtod(word, reserve, WORD, native), "cuMemcpyDtoDAsync")
        self.mark(stream, reserve, USED)
        stages, gradient = self.stages, dy
        if gradient is None:
            gradient = stages.more
            self.clear(stream, gradient, self._out)
        if self._padded:  # cuDNN leaves the part after the end of a sequence unchanged
            self.clear(stream, dx, self._dx)
        if stages.all[0].placing.direct:
            self.clear(stream, dweights, self._dw)
        for number, stage in reversed(list(enumerate(stages.all))):
            below = stages.all[number - 1].kept if number else None
            out = y if number == len(stages.all) - 1 else reserve + stage.kept.out
            fed = x if below is None else reserve + below.passed
            target = dx if below is None else stages.more + (self._between if gradient == stages.more else 0)
            states = [_moved(address, stage.states) for address in (hx, dh_n, dhx)]
            cells = [_moved(address, stage.cells) for address in (cx, dc_n, dcx)]
            own, at = reserve + stage.kept.reserve, self.weights(stream, stage, weights)
            stage.network.backward_data(stream, out, gradient, target, states, cells, at, stages.work, own)
            self._by_weights(stream, stage, fed, states[0], out, dweights, own)
            gradient = target
            if self._dropping is not None and below is not None:
                self._dropping.backward(stream, gradient, reserve + below.mask)
        return CudaStatus(word, WORD, lambda found: check_filled(int.from_bytes(found, "little")))

    def _by_weights(
        self, stream: "CudaStream", stage: Stage, x: int, hx: int | None, y: int, dweights: int, reserve: int
    ) -> None:
        stages, placing = self.stages, stage.placing
        if placing.direct:
            stage.network.backward_weights(stream, x, hx, y, dweights, stages.work, reserve)
            return
        self.clear(stream, stages.gradients, placing.nbytes)
        stage.network.backward_weights(stream, x, hx, y, stages.gradients, stages.work, reserve)
        placing.deliver(stream.native, stages.gradients, dweights)

    def close(self) -> None:
        super().close()
        if self._memory is not None:
            self._library.device.release(self._memory)


def _dropping(library: "CudaDnn", op: RnnForwardTraining | RnnBackward, stages: int) -> Dropping | None:
    """Return the dropout between stages; None for a single stage."""
    if stages == 1:
        return None
    return Dropping(library.device, op.x.dtype, op.result().size, op.dropout)


def _moved(address: int | None, nbytes: int) -> int | None:
    return None if address is None else address + nbytes
