"""``Face``: base of the typed faces behind ``dev.<library>``."""

from typing import Any, Generic, Protocol

from callboard.core.mode import Mode
from callboard.core.op import Op

__all__ = ["Face", "Submit"]


class Submit(Protocol):
    """What a face hands its messages to: a device.

    The answer comes at once and follows from the class of the message:

    * ``value`` and the returned field was left None: a ``Reply`` of the number;
    * ``returns`` names one field: its ``GpuRef`` (the tuple of them for a ``tuple[InOut, ...]`` field);
    * ``returns`` names several: ``results(*refs)``, a NamedTuple, in the order of ``returns``;
    * ``returns`` names none: ``Reply[None]``.

    Raises:
        ShapeError, DeviceMismatch, GpuRefStale, MailboxFull: At the call; nothing has been sent.
    """

    def __call__(self, op: Op[Any, Any]) -> Any: ...


class Face(Generic[Mode]):
    """One method per message of a library: it makes the message and submits it.

    Refs are ``GpuRef[Mode]`` in its signatures, so that one face serves :mod:`callboard.sync`, too.
    """

    __slots__ = ("_submit",)

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
