"""One tree of errors, rooted in :class:`AccelError`. Every ask ends in a value or in one of these."""

from collections.abc import Sequence
from typing import NamedTuple

from callboard.actors.deadletters import DeadLetterSuppression
from callboard.actors.errors import AccelError, AskTimeout, MailboxFull, ReplyError

__all__ = [
    "AccelError",
    "AskTimeout",
    "BackendUnavailable",
    "BudgetSpent",
    "ContextLost",
    "ContextPoisoned",
    "DeviceMismatch",
    "DeviceStopped",
    "DriverError",
    "GpuRefStale",
    "IntegerRangeError",
    "LibraryError",
    "MailboxFull",
    "NumericalError",
    "OutOfMemory",
    "RemoteError",
    "ReplyError",
    "ShapeError",
    "Suspect",
    "Unrecoverable",
    "UnsupportedOp",
    "Withdrawn",
    "WorldLost",
]


class Suspect(NamedTuple):
    """An op that was in flight when a context was lost."""

    actor: str
    op: str
    request_key: str | None
    where: str
    """``file:line`` that created it."""


class ContextLost(AccelError):
    """Work or data was lost with a context. Retry with fresh refs (:func:`callboard.retrying`)."""

    retryable = True


class ContextPoisoned(ContextLost):
    """The context died (illegal access, trap, host killed or hung) while this op was accepted and not answered.

    Attributes:
        suspects: The ops that were in flight, oldest first.
        call: The op that failed with this error, as ``suspects`` would name it; None if the error belongs to no op.
        details: The Python stacks of the context host's threads, as faulthandler wrote them when the host crashed, or
            before it was killed as hung; at most 64 KiB. Empty if there are none, such as after SIGKILL.
        guarded: True if work in flight was under a quarantine, or resident actors were being set up: the cause of
            repeated losses is found, and they do not use up the budget of the device.
        starting: Names of the resident actors that were being set up. The loss is charged to them.
        unsent: True if the context had not been ready: nothing of this op had begun in it.
    """

    def __init__(self, message: str = "", suspects: Sequence[Suspect] = (), details: str = "") -> None:
        super().__init__(message)
        self.suspects = tuple(suspects)
        self.guarded = False
        self.starting: tuple[str, ...] = ()
        self.unsent = False
        self.call: Suspect | None = None
        self.details = details


class GpuRefStale(ContextLost):
    """The ref belongs to a lost generation, was freed, or its device has stopped.

    Attributes:
        reason: ``"context rebuilt"``, ``"freed"``, ``"device shutting down"`` or ``"device state dropped"``.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason or message


class WorldLost(ContextLost):
    """This formation of a world ended while the collective was in flight; its outputs are undefined.

    The world forms again by itself: ``await world.ready()``, then call again with fresh refs for the rank that is lost.

    Attributes:
        rank: The rank whose device was lost, or whose part failed; -1 if it is not a single one (nothing ended in
            time).
        formation: Number of the formation that ended, counted from 1.
    """

    def __init__(self, message: str = "", rank: int = -1, formation: int = 0) -> None:
        super().__init__(message)
        self.rank = rank
        self.formation = formation


class OutOfMemory(AccelError, MemoryError):
    """The device (or the memory limit of the configuration) has no room, after a flush, a trim and one retry."""


class Unrecoverable(AccelError):
    """The device cannot be used any more (ECC, NVLink, restart budget spent).

    Attributes:
        details: Details of the last loss (:attr:`ContextPoisoned.details`); empty when there are none.
    """

    def __init__(self, message: str = "", details: str = "") -> None:
        super().__init__(message)
        self.details = details


class DeviceStopped(Unrecoverable):
    """The device has stopped: closed, or given up by its supervisor.

    Attributes:
        closed: True if the application closed it.
    """

    closed = False


class LibraryError(AccelError):
    """A library call failed without harm to the context.

    Attributes:
        lib: ``"cublas"``, ``"scipy"`` …
        code: The vendor's status, 0 if it has none.
        unexpected: True if the library raised an exception of its own instead of returning a status: its handle is
            made again (:meth:`DeviceSupervisor.on_library_failure`).
    """

    unexpected = False

    def __init__(self, message: str = "", lib: str = "", code: int = 0, unexpected: bool = False) -> None:
        super().__init__(message)
        self.lib = lib
        self.code = code
        if unexpected:
            self.unexpected = True


class NumericalError(AccelError, ArithmeticError):
    """These numbers have no result: a singular or indefinite matrix, an iteration that did not converge, bad weights.

    The error is an answer: the library is not restarted. Ops that were already called on the result fail with the same
    error.

    Attributes:
        info: The positive status of the routine, as LAPACK documents it (for a batch, that of the first item that
            failed), or -1 when an operand is not acceptable: NaN or infinities, an invalid weight.
        item: The first item of a batch that failed; -1 if there is no batch.
    """

    def __init__(self, message: str = "", info: int = 0, item: int = -1) -> None:
        super().__init__(message)
        self.info = info
        self.item = item


class DriverError(AccelError):
    """A driver call failed without harm to the context.

    Attributes:
        code: The driver's status (a ``CUresult``).
    """

    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class ShapeError(AccelError, ValueError):
    """Shapes, dtypes, strides or aliasing do not fit. Raised at the call, before anything is sent."""


class IntegerRangeError(ShapeError, OverflowError):
    """A number is no value of the integer dtype that is to hold it. As NumPy's error, it is an ``OverflowError``."""


class DeviceMismatch(AccelError, ValueError):
    """A ref of another device was passed. Raised at the call."""


class UnsupportedOp(AccelError, NotImplementedError):
    """The backend does not execute this op (or not for this dtype); the text gives the reason."""


class BackendUnavailable(AccelError, ImportError):
    """A backend or library cannot be used here; the text names what is missing and how to install it."""


class BudgetSpent(AccelError):
    """An execution took longer than it may, and was ended; repeated, it may take as long.

    The context is as it was, unless it had to be replaced to end the call of a resident actor (``run_limit``).
    """


class Withdrawn(AccelError, DeadLetterSuppression):
    """The op was cancelled before it was sent; it has done nothing. If it is not awaited, that is not logged."""


class RemoteError(AccelError):
    """An exception of user code in a context host that cannot be rebuilt here.

    Attributes:
        type: Qualified name of its class.
        message: Text of the exception.
        traceback: Formatted traceback of the exception.
    """

    def __init__(self, type: str = "", message: str = "", traceback: str = "") -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.traceback = traceback
