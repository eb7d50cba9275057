"""The messages between the application and a context host.

Plain data: the content of the wire, and the objects that a thread host receives.

Ids of ops, buffers and requests are minted by the application, from one counter per process, and never reused. Buffers
that a host mints itself (results of resident actors) have negative ids.
"""

from typing import Any

import msgspec

__all__ = ["VERSION", "Call", "FailureMessage", "FromHost", "ProtocolError", "ToHost"]

VERSION = 11
"""Incremented with every change of a message here; both ends must agree before any other message."""


class ProtocolError(Exception):
    """The other end sent unreadable data, or a message that does not fit those before it. It cannot be trusted."""


class Plain(msgspec.Struct, array_like=True, gc=False):
    """Base of everything here."""


class Call(Plain):
    """One op.

    Attributes:
        id: Id of the op.
        signature: Tag, settings and layouts (:mod:`callboard.core.opinfo`), or a recording, which the call replays
            (:mod:`callboard.device.protocol.recording`). On the wire, a repeated signature is replaced by its number
            (:mod:`callboard.device.protocol.signatures`).
        bindings: ``[buffer, offset, …]`` of the present operands, in order; ``[arena, offset]`` for a host operand.
        numbers: Values of the scalars that are numbers, typed: f64, or i64 and u64 as integers; a c128 is two f64.
        outputs: Ids of the buffers to make, one for each ``Out`` field left out. With an empty signature: the buffers
            and recordings to free.
        withdrawn: Cancelled before it was sent: it is not launched, and its outputs count as failed for their readers.
    """

    id: int
    signature: bytes
    bindings: list[int]
    numbers: list[int | float]
    outputs: list[int]
    withdrawn: bool = False


class FailureMessage(Plain):
    """The failure of an op or a request.

    Attributes:
        id: Id of the op or request.
        error: Name of the class in :mod:`callboard.core.errors`, or of a builtin exception.
        message: Text of the error.
        attributes: Other attributes of the error that can be sent (``code``, ``lib``, ``reason`` …).
        notes: Lines added to the error.
    """

    id: int
    error: str
    message: str
    attributes: dict[str, Any]
    notes: list[str] = []


# -- to the host -------------------------------------------------------------------------------------------------------


class Calls(Plain, tag=1):
    """Ops, in program order.

    Attributes:
        calls: The ops.
        known: Number of signatures that the host has and the calls may name by number; 0 for a thread host.
    """

    calls: list[Call]
    known: int = 0


class Open(Plain, tag=3):
    """First message: create the context and serve.

    Attributes:
        device: :class:`callboard.core.backend.DeviceInfo`, as a list.
        generation: The generation that this context will be; 0 for a standby.
        config: :class:`callboard.device.config.HostConfig`, encoded.
        hot: A standby that creates its context, handles and workspaces now.
        asks: Methods of the supervisor that decide about failures of the host (:class:`Failing`); failures of other
            kinds are decided by the host, as the default does.
    """

    device: list[Any]
    generation: int
    config: bytes
    hot: bool = False
    asks: list[str] = []


class MapArena(Plain, tag=4):
    """Map shared memory; in a process host its descriptor follows on the control socket.

    Attributes:
        arena: Id.
        nbytes: Size.
        address: Address of the memory, for a thread host; 0 for a process.
    """

    arena: int
    nbytes: int
    address: int = 0


class UnmapArena(Plain, tag=5):
    arena: int


class Ask(Plain, tag=6):
    """A control request (statistics, trim, trace …), answered in the one order by :class:`Answer`.

    Attributes:
        id: Id of the request.
        what: Name of the request.
        argument: Argument of the request, as MessagePack.
    """

    id: int
    what: str
    argument: bytes = b""


class ActorCall(Plain, tag=7):
    """A call of a resident actor's method; answered by a completion, whose value :mod:`.residents.values` encodes.

    Attributes:
        id: Id of the call.
        actor: Id of the actor.
        body: Method, arguments, and while telemetry is on the caller's trace context, encoded by
            :mod:`callboard.device.protocol.residents`.
        bindings: Buffers that it may read or write, ``[buffer, offset, …]``.
        layouts: Layouts of these buffers, each as in ``Layout.wire``.
        writes: For each buffer, whether the call may write it.
        staged: ``[arena, offset, nbytes]`` of the arrays sent beside the body; empty when there are none.
        withdrawn: Cancelled before it was sent.
        room: ``[arena, offset, nbytes]`` for the arrays of the result, by the size of the last ones; empty: none.
        deadline: Seconds of ``time.monotonic()`` (on Linux the same clock in all processes) from which on it is not
            begun; 0: none.
        shared: For an actor in a process of its own, in place of ``bindings``, ``layouts`` and ``writes``:
            ``[regions, operands]``, the memory that the device's own host lends (:mod:`.residents.regions`).
    """

    id: int
    actor: int
    body: bytes
    bindings: list[int]
    layouts: list[msgspec.Raw]
    writes: list[bool]
    staged: list[int]
    withdrawn: bool = False
    room: list[int] = []
    deadline: float = 0.0
    shared: list[Any] = []


class CancelCall(Plain, tag=13):
    """Cancel a call of a resident actor: it is not begun, or ``ctx.cancelled()`` becomes true.

    Attributes:
        call: Id of the call.
        overflow: A newer call takes its place; nothing happens if it runs.
    """

    call: int
    overflow: bool = False


class Room(Plain, tag=12):
    """Memory for the arrays of a result: the answer to :class:`RoomWanted`.

    Attributes:
        id: Id of the call.
        place: ``[arena, offset]``; empty when there is no room, for the reason in ``why``.
        why: Text of the :class:`MailboxFull <callboard.core.errors.MailboxFull>`.
        retryable: There may be room later; False if the result can never fit.
    """

    id: int
    place: list[int]
    why: str = ""
    retryable: bool = True


class Release(Plain, tag=14):
    """A call in another process has ended: the arrays that were held for it are free.

    Attributes:
        id: Id of the call that holds them.
        failure: The reason why they count as spoilt, those that it may have written.
    """

    id: int
    failure: FailureMessage | None = None


class DeviceRoom(Plain, tag=15):
    """The targets of a result's device arrays: the answer to :class:`DeviceRoomWanted`.

    Attributes:
        id: Id of the call that holds them.
        region: A region of :mod:`.residents.regions`; empty when there is no room.
        failure: The reason why there is no room.
    """

    id: int
    region: list[Any]
    failure: FailureMessage | None = None


class StartActor(Plain, tag=8):
    """Start a resident actor; a standby runs its ``prepare`` only, and its ``warm_up`` if it is hot.

    Attributes:
        actor: Id of the actor.
        name: Name of the actor.
        recipe: :class:`Props <callboard.actors.Props>` of the actor: pickled for a process, the object for a thread.
            None: the actor is in another process; its calls hold arrays for it here.
        alone: It has this host for itself: the arrays that it gives are copied to the device's own host.
        held: None of its code runs until another message for this actor arrives without it.
    """

    actor: int
    name: str
    recipe: Any
    alone: bool = False
    held: bool = False


class StopActor(Plain, tag=9):
    actor: int


class Expect(Plain, tag=16):
    """A buffer in another device's memory: its readers wait for :class:`Arrived`.

    Attributes:
        buffer: Id of the buffer; ops that name it follow.
    """

    buffer: int


class Arrived(Plain, tag=17):
    """The memory of such a buffer can be read, until the ops that read it have their completions.

    Attributes:
        buffer: Id of the buffer.
        nbytes: Size in bytes.
        where: ``[arena, offset]``; ``[handle, offset, process, when it was started]`` of memory that another process
            has; ``[Memory, offset]`` of memory of this process (a thread host). Empty for an array without elements.
        failure: The reason why the memory is not available; ops that read the buffer fail with it. None when it is.
    """

    buffer: int
    nbytes: int
    where: list[Any]
    failure: FailureMessage | None = None


class Activate(Plain, tag=10):
    """A hot or warm standby becomes the device's context, under this generation."""

    generation: int


class Decided(Plain, tag=18):
    """The decision about the oldest :class:`Failing` that has none.

    Attributes:
        restart: The library's handle and plans are made again.
        trim: Memory is released, which the request ``"flushed"`` ends; an op that waits is tried again then.
    """

    restart: bool = False
    trim: bool = False


class Close(Plain, tag=11):
    """Finish ops in flight, send :class:`Closed`, exit."""


ToHost = (
    Calls
    | Open
    | MapArena
    | UnmapArena
    | Ask
    | ActorCall
    | CancelCall
    | Room
    | DeviceRoom
    | Release
    | StartActor
    | StopActor
    | Expect
    | Arrived
    | Activate
    | Decided
    | Close
)


# -- from the host -----------------------------------------------------------------------------------------------------


class Hello(Plain, tag=1):
    """First message of a process host."""

    version: int
    pid: int


class Ready(Plain, tag=2):
    """The context is ready (or a warm standby has imported everything).

    Attributes:
        generation: 0 for a standby.
        hot: True if a context exists.
        seconds: Seconds by phase: ``{"import": …, "open": …}``.
        extra: ``compute_capability``, ``native`` handles and the like.
    """

    generation: int
    hot: bool
    seconds: dict[str, float]
    extra: dict[str, Any]


class Completions(Plain, tag=3):
    """Ops that are done.

    Attributes:
        done: Ids of ops that succeeded.
        values: ``[id, value]`` for those that are answered with a value; complex numbers are ``[re, im]``.
        failed: ``[id, root]`` for the others; ``root`` is the op that failed first: the op itself, or one whose result
            it would have read.
        causes: The reason why the roots named in this message failed, each once.
        returned: The same as ``calls`` of :class:`Returned`.
    """

    done: list[int]
    values: list[tuple[int, Any]]
    failed: list[tuple[int, int]] = []
    causes: list[FailureMessage] = []
    returned: list[int] = []


class Answer(Plain, tag=4):
    """Reply to an :class:`Ask`; ``error`` is set when it failed."""

    id: int
    value: bytes
    error: FailureMessage | None = None


class ContextDied(Plain, tag=5):
    """The context is dead; the host leaves. Sent before its process exits, so that the takeover does not wait for that.

    Attributes:
        generation: Generation of the context.
        error: ``ContextPoisoned`` or ``Unrecoverable``.
    """

    generation: int
    error: FailureMessage


class Flush(Plain, tag=6):
    """Out of memory: send the frees you hold, then ask ``"flushed"``."""


class Failing(Plain, tag=16):
    """A failure about which the supervisor decides; no op is launched before :class:`Decided`.

    Attributes:
        tag: Tag of the op.
        failure: The ``OutOfMemory`` or ``LibraryError``.
        waits: The op has not begun, and is tried again after a trim; else it has failed.
        again: It waits, and was tried again.
    """

    tag: str
    failure: FailureMessage
    waits: bool = False
    again: bool = False


class RoomWanted(Plain, tag=7):
    """A result has arrays that are sent beside it, and the call provided no memory of their size."""

    id: int
    nbytes: int


class DeviceRoomWanted(Plain, tag=13):
    """A result has device arrays, of an actor in a process of its own: where may they be copied?"""

    id: int
    nbytes: int


class Held(Plain, tag=14):
    """A call in another process may use its arrays from now on, until :class:`Release`.

    Attributes:
        id: Id of the call that holds the arrays.
        regions: Regions that contain the arrays (:mod:`.residents.regions`); empty when they were copied to the call's
            ``room``.
    """

    id: int
    regions: list[Any]


class Returned(Plain, tag=12):
    """The arrays sent with these calls are not used any more: their memory belongs to the application again."""

    calls: list[int]


class ActorEvent(Plain, tag=8):
    """A change of state of a resident actor.

    The actor has prepared, and warmed up in a hot standby (``"prepared"``), is ready (``"ready"``), has failed and is
    being created again (``"restarting"``, with the ``error``), is ready again after a failure (``"restarted"``), or has
    stopped (``"stopped"``, with the ``error`` unless the stop was requested).
    """

    actor: int
    event: str
    error: FailureMessage | None = None


class Traces(Plain, tag=9):
    """Records of ops, while a trace is installed.

    Each is ``[op id, tag, stream, began, enqueued, completed, ok, started, seconds]``. Times are seconds of the host's
    ``time.monotonic()`` (on Linux the same clock in all processes).
    """

    records: list[tuple[int, str, int, float, float, float, bool, float, float]]


class Unknown(Plain, tag=10):
    """A message of a kind unknown to this host arrived in a valid frame; it was skipped."""

    kind: int


class MemoryUsage(Plain, tag=15):
    """The device memory now, sent when it has changed by a given step since the last time: see the request ``memory``.

    Attributes:
        free, total: Bytes of the device.
        used, cached: Bytes in the blocks of arrays, and kept for reuse.
    """

    free: int
    total: int
    used: int
    cached: int


class Closed(Plain, tag=11):
    """Everything in flight is done; the host leaves."""


FromHost = (
    Hello
    | Ready
    | Completions
    | Answer
    | ContextDied
    | Flush
    | Failing
    | RoomWanted
    | DeviceRoomWanted
    | Held
    | Returned
    | ActorEvent
    | Traces
    | MemoryUsage
    | Unknown
    | Closed
)
