"""``Left``: waits for ops that were cancelled, and the ops that outlast them."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.core.reply import Reply

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Left"]


class Left:
    """Has the context replaced if an op runs on for ``cancelled_after`` seconds after a wait for it was cancelled.

    Ctrl-C cancels a wait of a thread.

    While anything still waits for that op, or for one that was called before it, it runs on, and is looked at again.

    Args:
        port: Op port of the device.

    Attributes:
        replace: Has the context replaced. On the thread of the loop.
    """

    def __init__(self, port: "OpPort") -> None:
        self._port = port
        self.replace: Callable[[], None] = lambda: None

    def __call__(self, reply: Reply[Any]) -> None:
        """The task that waited for this reply has been cancelled, or Ctrl-C has ended the wait. Any thread."""
        config = self._port.config
        if config.cancelled_after is not None and config.isolation == "process":
            op = reply._op or max(self._port.unanswered.entries, default=0)  # a transfer's reply names no op
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._port.loop.call_soon_threadsafe(self._look_later, op)

    def _look_later(self, op: int) -> None:
        after = self._port.config.cancelled_after
        if after is not None and op in self._port.unanswered.entries:
            self._port.loop.call_later(after, self._look, op)

    def _look(self, op: int) -> None:
        entries = self._port.unanswered.entries
        if op not in entries:
            return
        if any(number <= op and _awaited(entry.reply()) for number, entry in list(entries.items())):
            self._look_later(op)
        else:
            self.replace()


def _awaited(reply: Any) -> bool:
    """True if something waits for a reply, or for one of the refs of an op."""
    return any(ref._awaited for ref in getattr(reply, "refs", (reply,)) if isinstance(ref, Reply))
