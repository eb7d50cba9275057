"""``python -m callboard.device.host.child``: the program of a process host, started by :class:`ProcessHost`.

Imports few modules before it sends Hello; the main thread is the admitting thread.
"""

import argparse
import faulthandler
import importlib
import io
import json
import logging
import os
import signal
import socket
import sys
import traceback

from callboard.device.host import collecting
from callboard.device.host.channel import ChannelClosed
from callboard.device.host.childcontrol import ControlThread, LogForwarder, die_with
from callboard.device.host.guardian import fork_guardian
from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol.control import EndWorld
from callboard.device.protocol.messages import VERSION, Hello
from callboard.device.protocol.residents.importing import enter_host

SWITCH_INTERVAL = 2e-5


def main() -> None:
    """Set the process up as a good citizen, serve, leave."""
    arguments = _arguments()
    enter_host(arguments.label)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the application; it closes us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the spawner until here
    parent = die_with(arguments.parent)
    if arguments.guardian:
        fork_guardian()  # while there is one thread
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _restore_path()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    # An admitting loop that polls keeps the GIL from the control thread for seconds at the default of 5 ms.
    if sys.getswitchinterval() > SWITCH_INTERVAL:
        sys.setswitchinterval(SWITCH_INTERVAL)
    collecting.rarely()
    for descriptor in (arguments.op_fd, arguments.control_fd):
        os.set_inheritable(descriptor, False)
    pulse = Pulse()
    channel = SocketChannel(socket.socket(fileno=arguments.op_fd), pulse)
    control_socket = socket.socket(fileno=arguments.control_fd)
    control = ControlThread(control_socket, parent, pulse, arguments.interval, channel.take_descriptor, _end_world)
    logging.basicConfig(level=arguments.log_level, handlers=[LogForwarder(control)])
    channel.send(Hello(VERSION, os.getpid()))
    channel.leave(_serve(arguments.serve, channel))


def _end_world(message: EndWorld) -> None:
    library = sys.modules.get("callboard.kernel.collective.library")
    if library is not None:  # else there is no world here
        library.end_members(message.world, message.lost, message.reason, message.formation)


def _serve(name: str, channel: SocketChannel) -> int:
    channel.busy("import")
    try:
        module, _, function = name.partition(":")
        serve = getattr(importlib.import_module(module), function)
        channel.busy(None)
        code: int = serve(channel)
    except ChannelClosed:
        return 0
    except BaseException:  # to stderr, whose last lines go into the application's account of the end
        traceback.print_exc()
        return 1
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("callboard.device.host.child")
    parser.add_argument("--label", required=True)
    parser.add_argument("--serve", required=True)
    for name in ("--parent", "--op-fd", "--control-fd", "--log-level"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--guardian", action="store_true")
    return parser.parse_args()


def _restore_path() -> None:
    """Import from where the application imports, with its arguments, and let our own children see its environment.

    A module of the user's may read ``sys.argv``, as those of multiprocessing's children do.
    """
    path, python_path, sys.argv[:] = json.loads(os.environ.pop("CALLBOARD_CHILD_PATH"))
    sys.path[:] = path
    if python_path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = python_path


if __name__ == "__main__":
    main()
