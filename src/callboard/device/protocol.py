"""What the application and a context host say to each other.

Plain data: what crosses the wire, and what a thread host is handed.

Ids of ops, buffers and requests are minted by the application, from one counter per process, and never reused. Buffers
that a host mints itself (results of resident actors) have negative ids.
"""

from typing import Any

import msgspec

__all__ = ["VERSION", "Call", "Failure", "FromHost", "ToHost"]

VERSION = 1
"""Raised with every change of a message here; both ends must agree before anything else is said."""


class Plain(msgspec.Struct, array_like=True, gc=False):
    """Base of everything here."""


class Call(Plain):
    """One op.

    Attributes:
        id: Of the op.
        head: Tag, settings and layouts (:mod:`callboard.core.opinfo`).
        places: ``[buffer, offset, …]`` of the operands that are there, in order; of a host operand, ``[arena,
            offset]``.
        numbers: Of the scalars that are numbers.
        made: Ids of the buffers to make, one for each ``Out`` field left out. With an empty head: the buffers to free.
        withdrawn: Cancelled before it was sent: it is not launched, and what it would have written fails for its
            readers.
    """

    id: int
    head: bytes
    places: list[int]
    numbers: list[float]
    made: list[int]
    withdrawn: bool = False


class Failure(Plain):
    """An op that failed.

    Attributes:
        id: Of the op.
        error: Name of the class in :mod:`callboard.core.errors`, or of a builtin exception.
        message: Its text.
        attributes: Its other attributes that can travel (``code``, ``lib``, ``reason`` …).
        cause: Id of the op that failed first, when this one only read what that one owed; else 0.
        notes: Lines added to the error.
    """

    id: int
    error: str
    message: str
    attributes: dict[str, Any]
    cause: int = 0
    notes: list[str] = []


# -- to the host -------------------------------------------------------------------------------------------------------


class Calls(Plain, tag=1):
    """Ops, in program order."""

    calls: list[Call]


class Open(Plain, tag=3):
    """First message: create the context and serve.

    Attributes:
        device: :class:`callboard.core.backend.DeviceInfo`, as a list.
        generation: The generation that this context will be; 0 for a standby.
        config: :class:`callboard.device.config.HostConfig`, encoded.
        hot: A standby that creates its context, handles and workspaces now.
    """

    device: list[Any]
    generation: int
    config: bytes
    hot: bool = False


class MapArena(Plain, tag=4):
    """Map shared memory; in a process host its descriptor follows on the control socket.

    Attributes:
        arena: Id.
        nbytes: Size.
        address: Where it lies, for a thread host; 0 for a process.
    """

    arena: int
    nbytes: int
    address: int = 0


class UnmapArena(Plain, tag=5):
    arena: int


class Ask(Plain, tag=6):
    """A control request (statistics, trim, trace …), answered in the one order by :class:`Answer`.

    Attributes:
        id: Of the request.
        what: Name of the request.
        argument: Its argument, MessagePack.
    """

    id: int
    what: str
    argument: bytes = b""


class Turn(Plain, tag=7):
    """A call of a resident actor's method; answered by a verdict, whose value :mod:`callboard.device.resident` encodes.

    Attributes:
        id: Of the call.
        actor: Id of the actor.
        body: Method and arguments, encoded by :mod:`callboard.device.resident`.
        places: Buffers that it may read or write, ``[buffer, offset, …]``.
        layouts: Their layouts, each as in ``Layout.wire``.
        writes: Which of them it may write.
        staged: ``[arena, offset, nbytes]`` of the arrays that came beside the body; empty when there are none.
        withdrawn: Cancelled before it was sent.
    """

    id: int
    actor: int
    body: bytes
    places: list[int]
    layouts: list[msgspec.Raw]
    writes: list[bool]
    staged: list[int]
    withdrawn: bool = False


class Room(Plain, tag=12):
    """Where a turn's arrays may be written: the answer to :class:`RoomWanted`.

    Attributes:
        id: Of the turn.
        place: ``[arena, offset]``; empty when there is no room, and ``why`` says so.
        why: Text of the :class:`MailboxFull <callboard.core.errors.MailboxFull>`.
    """

    id: int
    place: list[int]
    why: str = ""


class StartActor(Plain, tag=8):
    """Start a resident actor; a standby runs its ``prepare`` only.

    Attributes:
        actor: Its id.
        name: Its name.
        recipe: Its :class:`Props <callboard.actors.Props>`: pickled for a process, itself for a thread.
    """

    actor: int
    name: str
    recipe: Any


class StopActor(Plain, tag=9):
    actor: int


class Activate(Plain, tag=10):
    """A hot or warm standby becomes the device's context, under this generation."""

    generation: int


class Close(Plain, tag=11):
    """Finish what is in flight, say :class:`Closed`, leave."""


ToHost = Calls | Open | MapArena | UnmapArena | Ask | Turn | Room | StartActor | StopActor | Activate | Close


# -- from the host -----------------------------------------------------------------------------------------------------


class Hello(Plain, tag=1):
    """First message of a process host."""

    version: int
    pid: int


class Ready(Plain, tag=2):
    """The context is there (or a warm standby has imported everything).

    Attributes:
        generation: 0 for a standby.
        hot: Whether a context exists.
        seconds: What it took: ``{"import": …, "open": …}``.
        extra: ``compute_capability``, ``native`` handles and the like.
    """

    generation: int
    hot: bool
    seconds: dict[str, float]
    extra: dict[str, Any]


class Verdicts(Plain, tag=3):
    """Ops that are done.

    Attributes:
        done: Ids of ops that succeeded.
        values: ``[id, value]`` for those that are answered with a value; complex numbers are ``[re, im]``.
        failed: The others.
    """

    done: list[int]
    values: list[tuple[int, Any]]
    failed: list[Failure]


class Answer(Plain, tag=4):
    """Reply to an :class:`Ask`; ``error`` is set when it failed."""

    id: int
    value: bytes
    error: Failure | None = None


class Lost(Plain, tag=5):
    """The context is dead; the host leaves. Sent before its process exits, so that the takeover does not wait for that.

    Attributes:
        generation: Which context.
        error: ``ContextPoisoned`` or ``Unrecoverable``.
    """

    generation: int
    error: Failure


class Flush(Plain, tag=6):
    """Out of memory: send the frees you hold, then ask ``"flushed"``."""


class RoomWanted(Plain, tag=7):
    """A turn's result has arrays that travel beside it: where may they be written?"""

    id: int
    nbytes: int


class Returned(Plain, tag=12):
    """The arrays that came with these turns are not used any more: their memory is the application's again."""

    turns: list[int]


class ActorEvent(Plain, tag=8):
    """What became of a resident actor.

    It is up (``"ready"``), is up again after a failure (``"restarted"``) or has stopped (``"stopped"``; ``error`` says
    why, unless it was told to).
    """

    actor: int
    event: str
    error: Failure | None = None


class Traces(Plain, tag=9):
    """Records of ops, while a trace is installed: ``[op id, tag, stream, began, enqueued, completed, ok]``.

    Times are seconds of the host's ``time.monotonic()`` (on Linux the same clock in all processes).
    """

    records: list[tuple[int, str, int, float, float, float, bool]]


class Unknown(Plain, tag=10):
    """A message of a kind that this host does not know arrived in a sound frame; nothing else happened."""

    kind: int


class Closed(Plain, tag=11):
    """Everything in flight is done; the host leaves."""


FromHost = (
    Hello | Ready | Verdicts | Answer | Lost | Flush | RoomWanted | Returned | ActorEvent | Traces | Unknown | Closed
)
