"""``Prepared``: an op whose signature and plan are known, to be called several times with different operands.

:meth:`OpPort.submit <callboard.device.client.line.port.OpPort.submit>` checks and sends one op of one device. A
collective has a part on each of its devices, and either all parts are accepted or none. Later calls with arrays of the
same layouts have the same signatures. So the steps of ``submit`` are separate methods here.
"""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

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

__all__ = ["Prepared", "Receiver", "prepare"]

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
        """Check a call; return the operand bindings for :meth:`submit`. Deferred operands are submitted.

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
        port.check_room(1)
        deferrals = port.deferrals
        if deferrals is not None and deferrals.live:
            for at in plan.written:
                deferrals.before_write(operands[at].allocation)
        return found

    def submit(
        self,
        places: list[int],
        operands: Sequence[Any],
        numbers: list[int | float],
        receiver: Receiver,
        origin: "tuple[str | None, CodeType, int]",
    ) -> None:
        """Send a call that :meth:`places` has just checked.

        Args:
            places: Placements that :meth:`places` returned.
            operands: The same operands.
            numbers: The scalars of the call, in order.
            receiver: Receives the refs, and later the completion.
            origin: Place of the call, for errors.
        """
        port, plan = self.port, self._plan
        unanswered, outbox = port.unanswered, port.outbox
        pending, generation, mint = unanswered.entries, port.generation, port.mint
        op_id = mint()
        made = [mint() for _ in plan.outputs]
        call = Call(op_id, self._signature, places, numbers, made)
        sent = (outbox.here or not pending) and outbox.send(call)
        refs = [
            GpuRef(port, Allocation(buffer, outbox.released), layout, generation, 0, op_id)
            for buffer, layout in zip(made, plan.outputs, strict=True)
        ]
        for at in self._given:
            given = operands[at]
            refs.append(GpuRef(port, given.allocation, given.layout, generation, given.offset, op_id))
        receiver.refs = tuple(refs)
        target: Callable[[], Any] = lambda: receiver
        pending[op_id] = _entry(Entry, (target, plan.tag, *origin, None))
        if not sent:
            outbox.add(call)
        if unanswered.entries is not pending:  # lost meanwhile, as in `OpPort.submit`
            port.loop.call_soon_threadsafe(unanswered.fail_late, op_id, pending)
        outbox.remind()


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
