"""Arrays lent for one call of an actor in a separate process: arguments, and memory for the result."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from callboard.actors.loops.posting import post
from callboard.core.errors import AccelError
from callboard.core.layout import layout_from_wire
from callboard.core.ref import GpuRef
from callboard.core.reply import OpFailure
from callboard.device.client.line.entries import Gate
from callboard.device.client.line.port import OpPort
from callboard.device.client.residents.lender import Lender
from callboard.device.client.residents.loan import Loan
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import ActorCall, DeviceRoom
from callboard.kernel.memory import Empty

if TYPE_CHECKING:
    from callboard.device.client.residents.calls import Arguments, CallEnd
    from callboard.device.supervision.hosts.base import Host

__all__ = ["LentArguments", "LentRoom"]


class LentArguments:
    """The device arrays among a call's arguments: takes the call's place in both orders, and holds it back.

    ::

        with LentArguments(lender, arguments, end) as lent:
            accept(..., lambda id: lent.hold_back(call))
    """

    def __init__(self, lender: Lender, port: OpPort, arguments: "Arguments", end: "CallEnd") -> None:
        lender.start()
        self._lender = lender
        self._port = port
        self._tag = arguments.tag
        self._end = end
        self._gate = Gate()
        self._call: ActorCall | None = None
        self._shared: list[Any] = []
        self._loan = Loan(lender, arguments.refs, arguments.writes, self._held, self._failed)

    def __enter__(self) -> "LentArguments":
        self._lender.order.acquire()
        try:
            self._loan.ask(self._tag)
        except BaseException:  # Ctrl-C, too
            self._lender.order.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lender.order.release()
        if error is not None:
            post(self._port.loop, self.over, None)

    def hold_back(self, call: ActorCall) -> ActorCall:
        """Queue the call behind a gate.

        Until the arrays are held it counts as withdrawn, so it never runs without them.
        """
        self._call = call
        call.bindings, call.layouts, call.writes = [], [], []
        if self._shared:
            call.shared = self._shared
        else:
            call.withdrawn = True
            self._port.sources[call.id] = self._lender.port
            self._port.outbox.hold(self._gate)
        return call

    def _held(self, shared: list[Any]) -> None:
        with self._lender.order:
            self._shared = shared
            if self._call is not None:
                self._call.shared, self._call.withdrawn = shared, False
        self._open()

    def _failed(self, failure: OpFailure) -> None:
        self._end.fail_from(failure)
        if self._gate.is_open:  # the context is lost, and with it the arrays that the call uses
            self._end.caller.cancel(self._end.id)
        self._open()

    def _open(self) -> None:
        self._let()
        self._port.flush()

    def _let(self) -> None:
        self._gate.is_open = True
        if self._call is not None:
            self._port.sources.pop(self._call.id, None)

    def over(self, failure: OpFailure | None) -> None:
        """The call has ended, or will not run."""
        self._let()
        self._loan.over(failure)


class LentRoom:
    """Device memory for the arrays of one result, written by the actor's process."""

    def __init__(self, lender: Lender, call: int, nbytes: int, host: "Host") -> None:
        self._call = call
        self._host = host
        self._nbytes = nbytes
        self._whole: GpuRef[Any] | None = None
        self._loan: Loan | None = None
        try:
            lender.start()
            whole: GpuRef[Any] = lender.port.submit(Empty(shape=(nbytes,), dtype="u8"), further=True)
            self._whole = whole
            loan = Loan(lender, [whole], [True], self._held, self._failed, fresh=True)
            with lender.order:
                loan.ask(f"{lender.name}: room for a result")
            self._loan = loan
        except (AccelError, MemoryError, RuntimeError) as e:
            host.post(DeviceRoom(call, [], as_failure(call, e)))

    def _held(self, shared: Sequence[Any]) -> None:
        self._host.post(DeviceRoom(self._call, shared[0][0]))

    def _failed(self, failure: OpFailure) -> None:
        error = failure.cause.error(failure.op)
        failure.cause.seen = True  # the call fails from it
        self._host.post(DeviceRoom(self._call, [], as_failure(self._call, error)))

    def over(self, failure: OpFailure | None) -> None:
        """The call has ended."""
        if self._loan is not None:
            self._loan.over(failure)

    def ref(self, offset: int, dtype: int, shape: Sequence[int]) -> GpuRef[Any]:
        """One of the arrays.

        Raises:
            TypeError, ValueError: The host's message names none.
        """
        layout = layout_from_wire(dtype, shape, ())
        whole = self._whole
        if whole is None or type(offset) is not int or not 0 <= offset <= self._nbytes - layout.nbytes:
            raise ValueError(f"offset {offset!r:.80} of {layout!r} in a result of {self._nbytes} bytes")
        ref: GpuRef[Any] = GpuRef(whole._port, whole.allocation, layout, whole.generation, offset)
        ref._resolve()
        return ref
