"""The messages between the applications of a shared region and the process that holds its table.

They travel over a connection to a node, whose first message is :class:`Join`. Calls of entities pass the holder, which
keeps their order while a shard has no owner. Arguments and results are bytes that it does not read.
"""

from callboard.device.protocol.messages import FailureMessage, Plain

__all__ = [
    "Bounced",
    "CloseShard",
    "EntityAnswer",
    "EntityCall",
    "FromHolder",
    "Grant",
    "Join",
    "Joined",
    "Leave",
    "Offer",
    "Owners",
    "OwnersSettled",
    "Released",
    "Renew",
    "Renewed",
    "ToHolder",
]


class Join(Plain, tag=74):
    """First message: take part in a region. Answered by :class:`Joined`, or ``Refused``.

    Attributes:
        region: Name of the region.
        member: Id of the application, the same after a connection was cut.
        shards: Number of shards.
        lease: Seconds that ownership lasts without a :class:`Renew`; of the region's first application.
        devices: Weights of the application's devices by UUID.
        claims: Shards that the application owned when a connection was cut, as ``{shard: (device, fence)}``.
        clock: Wall clock of the application in milliseconds.
        number: See :class:`Offer`.
        fence, ahead: Of the last :class:`Renewed`; 0 if there was none.
    """

    region: str
    member: str
    shards: int
    lease: float
    devices: dict[str, float]
    claims: dict[int, tuple[str, int]]
    clock: int
    number: int
    fence: int = 0
    ahead: int = 0


class Joined(Plain, tag=75):
    """The application takes part; ``lease`` is the region's."""

    lease: float


class Offer(Plain, tag=76):
    """The application's devices have changed. ``number`` counts these messages; see :class:`OwnersSettled`."""

    devices: dict[str, float]
    number: int


class OwnersSettled(Plain, tag=77):
    """All shards have the owners that follow from the devices, those of offer ``number`` included."""

    number: int


class Renew(Plain, tag=78):
    """Extend the lease. ``clock`` as in :class:`Join`."""

    number: int
    clock: int


class Renewed(Plain, tag=79):
    """The lease was extended, by the message of this number.

    Attributes:
        number: See :class:`Renew`.
        fence: The greatest fence that was given.
        ahead: Milliseconds by which an application's clock is ahead of the holder's, at most.
    """

    number: int
    fence: int
    ahead: int


class Grant(Plain, tag=80):
    """The application owns a shard from now on; ``fence`` is greater than that of every earlier owner."""

    shard: int
    device: str
    fence: int


class CloseShard(Plain, tag=81):
    """Hand a shard over: answered by :class:`Released` when its actors have ended."""

    shard: int
    fence: int


class Released(Plain, tag=82):
    """No actor of the shard is left at the application."""

    shard: int
    fence: int


class EntityCall(Plain, tag=83):
    """A call of an entity: from its caller to the holder, which sends it on to the owner under an id of its own."""

    id: int
    shard: int
    entity: str
    method: str
    arguments: bytes


class Bounced(Plain, tag=84):
    """The owner has not begun this call, and hands the shard over."""

    id: int


class EntityAnswer(Plain, tag=85):
    """The outcome of a call: from the owner to the holder, and on to the caller."""

    id: int
    value: bytes
    failure: FailureMessage | None = None


class Owners(Plain, tag=86):
    """The owner of each shard as an index of ``devices``; -1 if it has none."""

    devices: list[str]
    shards: list[int]


class Leave(Plain, tag=87):
    """The application owns nothing any more, and sends no further message."""


ToHolder = Join | Offer | Renew | Released | EntityCall | Bounced | EntityAnswer | Leave
FromHolder = Joined | OwnersSettled | Renewed | Grant | CloseShard | EntityCall | EntityAnswer | Owners
