"""Errors of the answers of a gate and of experts."""

from callboard.actors.errors import AccelError

__all__ = ["BadExpertResult", "BadGate"]


class BadGate(AccelError, ValueError):
    """The logits of a gate are of the wrong shape, NaN, +inf, or -inf for every expert of a token.

    Attributes:
        token: The first token for which they are; None if the shape is wrong.
        expert: The expert whose logit it is; None if that is not one of them.
    """

    def __init__(self, message: str = "", token: int | None = None, expert: int | None = None) -> None:
        super().__init__(message)
        self.token = token
        self.expert = expert


class BadExpertResult(AccelError):
    """An expert returned a number of rows other than the number that it was given, or rows of another width.

    Attributes:
        expert: Number of the expert; None for a shared expert.
    """

    def __init__(self, message: str = "", expert: int | None = None) -> None:
        super().__init__(message)
        self.expert = expert
