"""``Exporters``: tells whether processes that own memory which this one reads have ended."""

import os
import select

from callboard.kernel.ipc.sharing import has_ended

__all__ = ["Exporters"]


class Exporters:
    """Processes, each by a descriptor (``pidfd_open``), which is polled in a fraction of the time of ``/proc``.

    Descriptors of processes that have ended are closed when the next process is looked up.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, select.poll]] = {}

    def ended(self, pid: int, started: int, within: float = 0.0) -> bool:
        """Whether the process has ended.

        Args:
            pid, started: Process id and start time (:func:`.process_started`), which together name no other process.
            within: Seconds to wait for its end.
        """
        if pid <= 0:  # it had ended before it was asked for
            return True
        try:
            known = self._known.get((pid, started)) or self._find(pid, started)
        except OSError:  # this process may have no more descriptors, or none of processes
            return has_ended(pid, started)
        return known is None or bool(known[1].poll(within * 1e3))

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor, _ in self._known.values():
            os.close(descriptor)
        self._known.clear()

    def _find(self, pid: int, started: int) -> "tuple[int, select.poll] | None":
        for process, (descriptor, poll) in list(self._known.items()):
            if poll.poll(0):
                os.close(descriptor)
                del self._known[process]
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        if has_ended(pid, started):  # the id is another process's by now
            os.close(descriptor)
            return None
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        self._known[pid, started] = descriptor, poll
        return self._known[pid, started]
