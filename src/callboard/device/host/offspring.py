"""Processes that resident actors start end with the application, also where it is killed.

The kernel then kills the host at once (:func:`~callboard.device.host.childcontrol.die_with`), so another process has to
end those that the host has started: a guard, which waits for the end of the application. It is a member of their group.
As long as it lives, the kernel therefore gives the group's number to no other process. Where the host ends and the
application lives, the application ends the group, the guard included.
"""

import logging
import subprocess
import sys
import threading

from callboard.device.host import processgroup

__all__ = ["end_with", "guard"]

log = logging.getLogger(__name__)

_parents: list[int] = []


def end_with(parent: int) -> None:
    """Name the process with which they end, by a pidfd; this process leads their group."""
    _parents.append(parent)


def guard() -> None:
    """Start the guard before the first actor; does nothing in a host that is no process."""
    while _parents:
        parent = _parents.pop()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", processgroup.__file__, str(parent)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(parent,),
                cwd="/",
            )
        except OSError as e:
            _failed(str(e))
        else:
            # It leaves a process that is no child of this one: os.wait() of an actor must not wait for that.
            threading.Thread(target=_wait, args=(process,), name="callboard-guard", daemon=True).start()


def _wait(process: "subprocess.Popen[bytes]") -> None:
    if code := process.wait():
        _failed(f"exit code {code}")


def _failed(why: str) -> None:
    log.warning("processes that actors start will outlive an application that is killed: no guard (%s)", why)
