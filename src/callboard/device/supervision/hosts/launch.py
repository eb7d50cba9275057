"""``launch``: a child process with its two sockets and its output pipes."""

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.control import control_pair
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.spawner import abandon, spawner

__all__ = ["Launched", "check_platform", "launch", "wait_status"]


class Launched(NamedTuple):
    """A running child, and our descriptors to it; nothing blocks but ``stdout`` and ``stderr``."""

    pid: int
    pidfd: int
    ops: socket.socket
    control: socket.socket
    stdout: int
    stderr: int


async def launch(arguments: list[str], backend_env: Mapping[str, str]) -> Launched:
    """Start ``python -m callboard.device.host.child`` with ``arguments``; the descriptors are passed by itself.

    Raises:
        BackendUnavailable: The working directory was deleted.
        HostEnd: ``"failed to start"``: no memory, no descriptors …
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        try:
            ops, their_ops = socket.socketpair()
            ours.callback(ops.close)
            theirs.callback(their_ops.close)
            ops.setblocking(False)
            control, their_control = control_pair()
            ours.callback(control.close)
            theirs.callback(their_control.close)
            outputs = []
            for _ in range(2):
                reading, writing = os.pipe()
                ours.callback(os.close, reading)
                theirs.callback(os.close, writing)
                outputs.append((reading, writing))
            (stdout, their_stdout), (stderr, their_stderr) = outputs
            sockets = ("--op-fd", str(their_ops.fileno()), "--control-fd", str(their_control.fileno()))
            child = await spawner().popen(
                # -P: a file in the current folder must not shadow a module of callboard or of the standard library.
                [sys.executable, "-P", "-m", "callboard.device.host.child", *arguments, *sockets],
                stdin=subprocess.DEVNULL,
                stdout=their_stdout,
                stderr=their_stderr,
                pass_fds=(their_ops.fileno(), their_control.fileno()),
                start_new_session=True,  # Ctrl-C in the terminal is for the application
                env=_environment(backend_env),
            )
            try:
                pidfd = os.pidfd_open(child.pid)
            except OSError:
                abandon(child)
                raise
        except OSError as e:
            raise HostEnd("failed to start", str(e)) from e
        child.returncode = 0  # it is waited for through the pidfd, so Popen must not try
        ours.pop_all()
        return Launched(child.pid, pidfd, ops, control, stdout, stderr)


def wait_status(pidfd: int) -> str:
    """Reap an ended process: ``"exit code 3"`` or ``"signal SIGSEGV"``."""
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # something in this process waits for every child
        result = None
    if result is None:
        return "exit status unknown"
    if result.si_code == os.CLD_EXITED:
        return f"exit code {result.si_status}"
    try:
        return f"signal {signal.Signals(result.si_status).name}"
    except ValueError:
        return f"signal {result.si_status}"


def check_platform() -> None:
    """Refuse a platform on which no host can be watched.

    Raises:
        BackendUnavailable: This platform, or this Python, has no process isolation.
    """
    if not (hasattr(os, "pidfd_open") and hasattr(os, "memfd_create") and hasattr(signal, "pidfd_send_signal")):
        raise BackendUnavailable(
            'isolation="process" needs the pidfd and memfd of Linux 5.4 or later, and this is '
            f'{sys.platform} {platform.release()}; use isolation="thread"'
        )
    if getattr(sys, "frozen", False):
        raise BackendUnavailable(
            'isolation="process" starts a Python interpreter, and this program is frozen, without a Python executable; '
            'use isolation="thread"'
        )
    if not sys.executable:
        raise BackendUnavailable(
            'isolation="process" starts a Python interpreter and sys.executable is empty (an embedded Python); '
            'set sys.executable, or use isolation="thread"'
        )


def _environment(backend_env: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: this process's, the backend's, and ``sys.path`` and ``sys.argv`` of this process.

    The child therefore imports the same modules, from a source tree too, and those that read arguments read the same.
    """
    environment = {**os.environ, **backend_env}
    try:
        path = [os.path.abspath(entry) for entry in sys.path]
    except FileNotFoundError:  # of os.getcwd(), for a relative entry: a program on stdin has one
        raise BackendUnavailable(
            'isolation="process" needs the working directory, which sys.path refers to, and it has been deleted; '
            "os.chdir() to one that exists before the device is opened"
        ) from None
    arguments = [str(one) for one in getattr(sys, "argv", ())]  # an embedded Python may have none
    environment["CALLBOARD_CHILD_PATH"] = json.dumps([path, environment.get("PYTHONPATH"), arguments])
    environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment
