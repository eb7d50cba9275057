"""``Replays``: the arrays that a recording uses now, and the calls that run it on them."""

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from callboard.core.errors import DeviceMismatch, GpuRefStale, ShapeError
from callboard.core.op import info_of
from callboard.core.ref import Allocation, GpuRef
from callboard.core.reply import Reply
from callboard.device.client.graphs.building import BuiltRecording, Input
from callboard.device.client.graphs.including import include
from callboard.device.client.graphs.recorder import OpRecorder
from callboard.device.client.graphs.services import RecordingServices
from callboard.device.client.line.entries import Several
from callboard.device.client.line.transfers import Transfers
from callboard.device.protocol.messages import Call
from callboard.device.protocol.residents.foreign import host_values
from callboard.kernel.memory import Empty
from callboard.kernel.recording import recorder

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Replays", "checked_ref"]

TAG = "graph.replay"


class Replays:
    """Replays a recording: on the inputs that it has now, and on arrays of its own, which it makes in each generation.

    Args:
        port: The op line of the device.
        transfers: Copies contents into inputs.
        services: Services of the device.
        built: The recording.
        recorded: The generation of the refs that the recording's block has given.
    """

    def __init__(
        self,
        port: "OpPort",
        transfers: Transfers,
        services: RecordingServices,
        built: BuiltRecording,
        recorded: int,
    ) -> None:
        self._port = port
        self._transfers = transfers
        self._services = services
        self.built = built
        self._recorded = recorded
        self._generation = 0  # the generation that the recording's own arrays are of
        self._owners: list[Allocation] = []
        self._places: list[int] = []

    def run(self, n: int, inputs: Mapping[str, Any]) -> Any:
        """Replay it ``n`` times, or prepare that where ``n`` is 0, after these arrays have taken their places.

        Returns:
            See :meth:`Recording.replay <callboard.Recording.replay>`.
        """
        port, made = self._port, self.built
        if port.recordings and (open_ := recorder.get()) is not None and open_.owns(port):
            assert isinstance(open_, OpRecorder)
            outputs = include(port, open_, made, n, inputs)
            if len(outputs) == 1:
                return outputs[0]
            return tuple(outputs) if outputs else _done(port)
        if inputs:
            self._give(inputs)
        generation = port.generation
        if self._generation != generation:
            self._renew(made)
        for one in made.inputs:
            if one.ref.allocation.freed or one.ref.generation != generation:
                raise self._missing(made)
        send = self._services._patiently
        if not made.draws or not n:
            numbers: list[int | float] = [n, *[0] * (2 * sum(len(draw.at) for draw in made.draws))]
            return send(lambda: self._send(made, numbers))
        send(port.check_room)
        answer: Any = None
        for numbers in made.drawn(n):
            answer = send(functools.partial(self._send, made, numbers))
        return answer

    def _send(self, made: BuiltRecording, numbers: list[int | float]) -> Any:
        port = self._port
        op_id = port.mint()
        answer: Any
        if numbers[0] and len(made.outputs) == 1:
            answer = self._output(made, 0, op_id)
            target: Callable[[], Any] = weakref.ref(answer)
        elif numbers[0] and made.outputs:
            answer = tuple(self._output(made, at, op_id) for at in range(len(made.outputs)))
            weak = [weakref.ref(ref) for ref in answer]
            target = lambda: Several([ref for w in weak if (ref := w()) is not None])
        else:
            answer = Reply(port, op_id)
            target = weakref.ref(answer)
        port.send(Call(op_id, made.signature, self._places, numbers, []), TAG, target, depth=4)
        return answer

    def _output(self, made: BuiltRecording, at: int, op_id: int) -> GpuRef[Any]:
        operand, offset, layout = made.outputs[at]
        given = len(made.inputs)
        if operand >= given:
            allocation = self._owners[operand - given]
        else:
            ref = made.inputs[operand].ref
            allocation, offset = ref.allocation, offset + ref.offset
        return GpuRef(self._port, allocation, layout, self._generation, offset, op_id)

    # -- arrays --------------------------------------------------------------------------------------------------------

    def _give(self, values: Mapping[str, Any]) -> None:
        made = self.built
        by_name = {one.name: one for one in made.inputs}
        given: list[tuple[Input, Any]] = []
        for name, value in values.items():
            one = by_name.get(name)
            if one is None:
                raise TypeError(f"replay: the recording has no input {name!r}; its inputs are {', '.join(by_name)}")
            if one.layout is None:
                raise ShapeError(
                    f"replay: ops use several parts of {name}, {one.used}; name the whole array in record()"
                )
            given.append((one, self._fitting(one, value)))
        after = {one.name: value for one, value in given if isinstance(value, GpuRef)}
        self._check_apart(made, after)
        for one, value in given:
            if isinstance(value, GpuRef):
                one.ref = value
            elif one.ref.is_stale:
                one.ref = self._services._patiently(lambda v=value: self._transfers.put(v, None, False))  # type: ignore[misc]
            else:
                self._services._patiently(lambda v=value, r=one.ref: self._transfers.put(v, None, False, r))  # type: ignore[misc]
        self._place(made)

    def _fitting(self, one: Input, value: Any) -> Any:
        layout = one.layout
        assert layout is not None
        if isinstance(value, GpuRef):
            ref = checked_ref(self._port, one.name, value)
            if ref.layout != layout:
                raise ShapeError(f"replay: {one.name} is {ref.layout!r}, recorded was {layout!r}, strides included")
            return ref
        array = host_values(f"replay: {one.name}", value, None)
        if array.shape != layout.shape or array.dtype != layout.dtype.np:
            raise ShapeError(f"replay: {one.name} is {array.dtype}{list(array.shape)}, recorded was {layout!r}")
        return array

    def _check_apart(self, made: BuiltRecording, after: Mapping[str, GpuRef[Any]]) -> None:
        """Reject refs by which an op would write to another operand's input."""
        refs = [after.get(one.name, one.ref) for one in made.inputs]
        for at, ref in enumerate(refs):
            if made.inputs[at].name not in after:
                continue
            if any(ref.allocation is owner for owner in self._owners):
                raise ShapeError(f"replay: {made.inputs[at].name} is an array that the recording writes; pass a copy")
            for other, beside in enumerate(refs):
                written = made.operands[at].writes or made.operands[other].writes
                if other != at and beside.allocation is ref.allocation and written:
                    raise ShapeError(
                        f"replay: {made.inputs[at].name} and {made.inputs[other].name} share memory, and the recording "
                        "writes to it; pass a copy"
                    )

    def _renew(self, made: BuiltRecording) -> None:
        """Make the recording's own arrays in this generation."""
        if any(one.ref.generation != self._port.generation for one in made.inputs):
            raise self._missing(made)
        port = self._port
        self._drop_owners()
        first, given = port.generation == self._recorded, len(made.inputs)
        for at, nbytes in enumerate(made.own):
            named = made.owners.get(given + at) if first else None
            owner = named or Allocation(port.mint(), port.outbox.released)
            owner.freed = False
            owner.pin()
            self._owners.append(owner)
            signature, _, _ = info_of(Empty).split(Empty(shape=(nbytes,), dtype="u8"))
            call = Call(port.mint(), signature, [], [], [owner.id])
            self._services._patiently(lambda call=call: port.send(call, "memory.empty", lambda: None, depth=5))  # type: ignore[misc]
        made.owners.clear()
        self._generation = port.generation
        self._place(made)

    def _place(self, made: BuiltRecording) -> None:
        places: list[int] = []
        for one in made.inputs:
            places += (one.ref.allocation.id, one.ref.offset)
        for owner in self._owners:
            places += (owner.id, 0)
        self._places = places

    def _missing(self, made: BuiltRecording) -> GpuRefStale:
        gone = [one for one in made.inputs if one.ref.is_stale]
        reason = gone[0].ref._why_stale() or "context rebuilt" if gone else "context rebuilt"
        names = "; ".join(f"{one.name}, {one.ref.layout!r}, {one.used}" for one in gone)
        cure = ", ".join(f"{one.name}=..." for one in gone if one.layout is not None)
        hint = f"pass {'it' if len(gone) == 1 else 'them'} again: replay({cure})" if cure else "record the ops again"
        error = GpuRefStale(f"the recording's inputs cannot be used ({reason}): {names}; {hint}", reason)
        error.device, error.generation, error.op = self._port.name, self._generation or None, TAG
        return error

    # -- its end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give the memory of its own arrays and its graphs back."""
        self.built.handle.free()
        self._drop_owners()

    def _drop_owners(self) -> None:
        for owner in self._owners:
            owner.unpin()
        self._owners = []

    def __del__(self) -> None:  # dropped: its arrays belong to their refs from now on
        self._drop_owners()


def checked_ref(port: "OpPort", name: str, ref: Any) -> GpuRef[Any]:
    """An array that a recording is given, which can be used on this device now.

    Raises:
        TypeError, DeviceMismatch, GpuRefStale
    """
    if not isinstance(ref, GpuRef):
        raise TypeError(f"{name} is {type(ref).__name__}; pass a GpuRef (dev.put(array) makes one)")
    if ref._port is not port:
        raise DeviceMismatch(f"{name} {ref.layout!r} is on {ref.device}; the recording is on {port.name}")
    return ref.access()


def _done(port: "OpPort") -> Reply[None]:
    reply: Reply[None] = Reply(port)
    reply._resolve()
    return reply
