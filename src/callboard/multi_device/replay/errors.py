"""Errors of journals and of replays."""

from callboard.actors.errors import AccelError, ReplyError

__all__ = ["JournalConflict", "JournalCorrupt", "JournalFailed", "NotRecordable", "ReplayDiverged"]


class JournalFailed(ReplyError):
    """The journal could not be written, so the message that was to be recorded was refused.

    An answer: the asker gets it, and no actor is restarted for it. The journal's own error is its ``__cause__``.
    """


class JournalConflict(AccelError):
    """Another writer has the journal, or has had it, so that records do not follow the last one.

    Attributes:
        expected: The sequence that the first of them had to have; 0 if another writer has the journal.
        got: The one that it had.
    """

    def __init__(self, message: str = "", expected: int = 0, got: int = 0) -> None:
        super().__init__(message)
        self.expected = expected
        self.got = got


class JournalCorrupt(AccelError):
    """A journal is damaged: a record does not match its checksum, is missing, or cannot be read.

    The end of a file that was cut off, as a crash leaves it, is none: ``cut`` of ``open`` tells of it.
    """


class NotRecordable(ReplyError, TypeError):
    """A message cannot be written to a journal, or not be restored from it."""


class ReplayDiverged(AccelError):
    """A replay differs from the recording."""
