"""Reasons for a failed swap."""

from typing import Literal

from callboard.actors.errors import AccelError

__all__ = ["Phase", "SwapFailed", "SwapInProgress", "UnknownVersion"]

Phase = Literal["plan", "load", "update", "warm", "check", "canary"]


class SwapFailed(AccelError):
    """A new version was not activated. The version that was active is still active; the new one was unloaded.

    Attributes:
        version: The new version.
        phase: ``"plan"``: there is no room for it beside the active one, and it cannot be swapped in place; nothing was
            changed. ``"update"``: putting its weights into the loaded model failed; those of the active version were
            restored. ``"load"``: ``load`` raised, or its result cannot be called. ``"warm"``: a warm-up call raised.
            ``"check"``: a golden item had a wrong response, or raised. ``"canary"``: too many of its requests failed,
            or too few had ended in the time of the trial.
        unload_error: Exception raised by unloading it, or by restoring the old weights; a ``TimeoutError`` if calls on
            threads do not end, so that it stays loaded. None if that succeeded, or if nothing was loaded.
    """

    def __init__(
        self, message: str = "", version: str = "", phase: Phase = "load", unload_error: Exception | None = None
    ) -> None:
        super().__init__(message)
        self.version = version
        self.phase: Phase = phase
        self.unload_error = unload_error


class SwapInProgress(AccelError):
    """Another swap is running, and the server was made with ``concurrent_swaps="refuse"``. Raised at the call."""

    retryable = True


class UnknownVersion(AccelError, LookupError):
    """There is no version of that name, or none to roll back to. Raised when it is the swap's turn."""
