"""``EdgeLimits``: what an app accepts from its clients."""

from dataclasses import dataclass

from callboard.patterns.contract.checks import check_number

__all__ = ["EdgeLimits"]

MIB = 1 << 20


@dataclass(frozen=True)
class EdgeLimits:
    """Bounds that apply before a request reaches a model.

    Attributes:
        max_body: Bytes of a body, also after it was decompressed; beyond that the status is 413.
        max_bodies: Bytes of the bodies of all open requests; beyond that the status is 503. At least ``max_body``.
        body_timeout: Seconds in which a head, and then a body, must have arrived; else 408.
        request_timeout: Seconds from the body's end until the response at most; else 504. None: as the client asks.
        send_timeout: Seconds in which a client must take some KiB of a response; else its connection is closed, and
            what was not sent is freed. It applies under :func:`serve` and :func:`listening`, on Linux.
        ready_timeout: Seconds that a request waits while its model's device opens, or replaces a lost context, or while
            its resident actor is set up; then 503. At most 1,024 requests of a model wait so.
        drain_timeout: Seconds that requests in progress have at the end; requests that are still running then get 503.
    """

    max_body: int = 64 * MIB
    max_bodies: int = 1024 * MIB
    body_timeout: float = 30.0
    request_timeout: float | None = None
    send_timeout: float = 60.0
    ready_timeout: float = 10.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in (
            *("max_body", "max_bodies"),
            *("body_timeout", "request_timeout", "send_timeout", "ready_timeout", "drain_timeout"),
        ):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, "positive", finite=True)
