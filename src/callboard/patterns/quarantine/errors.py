"""The error of a request that is refused because it has lost its context while it ran alone."""

from callboard.actors.errors import AccelError

__all__ = ["Quarantined"]


class Quarantined(AccelError):
    """The request has lost a context while it ran alone, and is refused for a time. No device call was made for it.

    Attributes:
        key: Key of the request.
        generations: Device and generation of each context that was lost with it, oldest first; of the last eight.
        until: When it may try again, in seconds of the quarantine's clock (``time.monotonic()``).
        retry_after: The same, in seconds from when this was raised.
    """

    def __init__(
        self,
        message: str = "",
        key: str = "",
        generations: tuple[tuple[str | None, int | None], ...] = (),
        until: float = 0.0,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.generations = generations
        self.until = until
        self.retry_after = retry_after
