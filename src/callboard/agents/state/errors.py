"""Errors of shared state."""

from callboard.actors.errors import AccelError

__all__ = ["DeadlockRefused", "LeaseLost", "LeaseTimeout", "StateLost"]


class LeaseLost(AccelError):
    """The token is no lease any more: it was released, has expired, or its holder has ended. Nothing was written."""

    retryable = True


class LeaseTimeout(AccelError, TimeoutError):
    """A lease was not granted in time."""

    retryable = True


class DeadlockRefused(AccelError):
    """Agents wait for each other in a circle; this one began last, and its request is refused.

    Attributes:
        cycle: The agents of the circle, each of which waits for the next.
    """

    retryable = True

    def __init__(self, message: str = "", cycle: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.cycle = cycle


class StateLost(AccelError):
    """The state was lost with a context of its device.

    Attributes:
        generation: The generation that was lost.
        version: The version that was lost.
        restored: The version of which it was made again; None if there is none, and the state has to be attached again.
    """

    retryable = True

    def __init__(self, message: str = "", generation: int = 0, version: int = 0, restored: int | None = None) -> None:
        super().__init__(message)
        self.generation, self.version, self.restored = generation, version, restored
