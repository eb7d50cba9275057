"""``Prepared``: an op whose signature and plan are known, to be called several times with different operands.

:meth:`OpPort.submit <callboard.device.client.line.port.OpPort.submit>` checks and sends one op of one device. A
collective has a part on each of its devices, and either all parts are accepted or none. Later calls with arrays of the
same layouts have the same signatures. So the steps of ``submit`` are separate methods here.
"""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from callboard.core.errors import UnsupportedOp
from callboard.core.op import Op, info_of
from callboard.core.ref import Allocation, GpuRef
from callboard.core.reply import OpFailure
from callboard.device.client.line.entries import Entry
from callboard.device.client.line.plans import check_overlaps
from callboard.device.protocol.messages import Call
from callboard.kernel.recording import recorder

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Prepared", "Receiver", "Sent", "prepare"]

_entry = tuple.__new__


class Receiver(Protocol):
    """Receives the refs of a call, and its completion on the thread of the device's loop.

    Attributes:
        refs: Outputs of the call; set when it is submitted.
    """

    refs: "tuple[GpuRef[Any], ...]"

    def _resolve(self) -> None: ...
    def _reject(self, failure: OpFailure) -> None: ...


class Prepared:
    """An op of one signature on one device. Each call passes its operands and numbers.

    Args:
        port: Port of the device.
        signature, plan: Signature and client plan of the op. Its reply is a tuple of arrays.
        given: Positions of the operands that the reply refers to, after the arrays that the op makes.
    """

    __slots__ = ("_given", "_plan", "_signature", "port")

    def __init__(self, port: "OpPort", signature: bytes, plan: Any, given: tuple[int, ...]) -> None:
        self.port = port
        self._signature = signature
        self._plan = plan
        self._given = given

    def places(self, operands: Sequence[Any], op: Op[Any, Any] | None = None) -> list[int] | None:
        """Check a call; return the operand bindings for :meth:`send`. Deferred operands are submitted.

        Args:
            operands: The operands, in order.
            op: The message that they belong to, for errors; None: return None instead of raising.

        Returns:
            Buffer id and offset of each operand. None: an operand cannot be used, or two operands share a buffer and
            have moved since the last call, so that overlaps have to be checked.

        Raises:
            ShapeError, DeviceMismatch, GpuRefStale: Only with ``op``: an operand cannot be used.
            MailboxFull, DeviceStopped: The device accepts no more ops.
        """
        port, plan = self.port, self._plan
        generation = port.generation
        found: list[int] = []
        for ref in operands:
            allocation = ref.allocation
            if ref.generation != generation or allocation.freed or ref._port is not port:
                if op is None:
                    return None
                raise port.unusable(plan.tag, op, ref)
            found.append(allocation.id)
            found.append(ref.offset)
        if plan.written and found != plan.apart:
            buffers = found[::2]
            if len(set(buffers)) < len(buffers):
                if op is None:
                    return None
                check_overlaps(op)
            plan.apart = found
        port.check_room()
        deferrals = port.deferrals
        if deferrals is not None and deferrals.live:
            for at in plan.written:
                deferrals.before_write(operands[at].allocation)
        return found

    def send(self, places: list[int], numbers: list[int | float]) -> "Sent":
        """Send a call that :meth:`places` has just checked; :meth:`enter` must follow.

        Args:
            places: Placements that :meth:`places` returned.
            numbers: The scalars of the call, in order.
        """
        port, outbox = self.port, self.port.outbox
        pending, generation, mint = port.unanswered.entries, port.generation, port.mint
        call = Call(mint(), self._signature, places, numbers, [mint() for _ in self._plan.outputs])
        return Sent(call, pending, generation, (outbox.here or not pending) and outbox.send(call))

    def enter(
        self,
        sent: "Sent",
        operands: Sequence[Any],
        receiver: Receiver,
        origin: "tuple[str | None, CodeType, int]",
    ) -> None:
        """Register a call, so that its completion finds the receiver; queue it if it could not be sent at once.

        Args:
            sent: What :meth:`send` returned.
            operands: The operands of the call.
            receiver: Receives the refs, and later the completion.
            origin: Place of the call, for errors.
        """
        port, plan = self.port, self._plan
        call, pending, generation, gone = sent
        refs = [
            GpuRef(port, Allocation(buffer, port.outbox.released), layout, generation, 0, call.id)
            for buffer, layout in zip(call.outputs, plan.outputs, strict=True)
        ]
        for at in self._given:
            given = operands[at]
            refs.append(GpuRef(port, given.allocation, given.layout, generation, given.offset, call.id))
        receiver.refs = tuple(refs)
        target: Callable[[], Any] = lambda: receiver
        port.enter(call, _entry(Entry, (target, plan.tag, *origin, None)), pending, gone)


class Sent(NamedTuple):
    """A call between :meth:`Prepared.send` and :meth:`Prepared.enter`.

    Attributes:
        call: The message.
        pending, generation: The port's when it was sent.
        gone: False: it has to be queued.
    """

    call: Call
    pending: dict[int, Entry]
    generation: int
    gone: bool


def prepare(port: "OpPort", op: Op[Any, Any], returned: Sequence[str]) -> tuple[Prepared, list[Any], list[int | float]]:
    """Prepare an op; returns its operands and numbers, too.

    Args:
        port: Port of the device.
        op: The message.
        returned: Operand fields that the reply refers to, after the arrays that the op makes.

    Raises:
        UnsupportedOp: The backend does not execute it, or a recording of the device is open.
        ShapeError
    """
    if port.recordings and (recording := recorder.get()) is not None and recording.owns(port):
        raise UnsupportedOp(f"{port.name}: {op.label} cannot be recorded; call it outside of the recording")
    signature, operands, numbers = info_of(type(op)).split(op)
    plan = port.plan(signature, op)
    places = {id(ref): at for at, ref in enumerate(operands)}
    given = tuple(places[id(ref)] for name in returned for ref in getattr(op, name) or ())
    return Prepared(port, signature, plan, given), operands, numbers
