"""Errors of journals and of replays."""

from callboard.actors.errors import AccelError, ReplyError

__all__ = ["JournalConflict", "JournalCorrupt", "JournalFailed", "NotRecordable", "ReplayDiverged"]


class JournalFailed(ReplyError):
    """The journal could not be written, so the message that was to be recorded was refused.

    An answer: the asker gets it, and no actor is restarted for it. The journal's own error is its ``__cause__``.
    """


class JournalConflict(AccelError):
    """Records were appended at another place than the end: a second writer has the journal, or had it.

    Attributes:
        expected: The sequence that the first of them had to have.
        got: The one that it had.
    """

    def __init__(self, message: str = "", expected: int = 0, got: int = 0) -> None:
        super().__init__(message)
        self.expected = expected
        self.got = got


class JournalCorrupt(AccelError):
    """A record in the middle of a journal is damaged: valid ones follow it, so it is not a torn tail."""


class NotRecordable(ReplyError, TypeError):
    """A message cannot be written to a journal, or not be restored from it."""


class ReplayDiverged(AccelError):
    """A replay differs from the recording."""
