"""An application in a separate process: it starts a host, prints its pid, and follows commands."""

import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # has no __main__ guard below, as scripts often have none

from callboard.device.protocol.messages import Answer, Ask
from callboard.device.supervision.hosts.process import ProcessHost


async def main(*steps: str) -> None:
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    ended = loop.create_future()

    def take(message: Any) -> None:
        if type(message) is Answer:
            answers.put_nowait(message.value)

    options: dict[str, Any] = {
        "hang_after": 30.0,
        "step_timeout": 300.0,
        "interval": 0.2,
        "label": "test",
        "serve": "standin:serve",
    }
    host = await ProcessHost.start(loop, {}, take, ended.set_result, **options)
    for step in steps:
        match step:
            case "sibling":  # holds all our descriptors, so that no end of file tells the host of our end
                # Forked behind Python's back, as a C library may: nobody closes anything in it.
                if ctypes.PyDLL(None).fork() == 0:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    while True:
                        signal.pause()
            case "catch":
                # not by print, which may be at work when the signal comes, and is not reentrant
                signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\n"))
            case "pause":
                print(host.pid, flush=True)
                await loop.run_in_executor(None, sys.stdin.readline)
            case "close":
                await host.close(20.0)
                print((await ended).reason, flush=True)
            case _:
                host.post(Ask(1, step, b"hello"))
                print((await answers.get()).decode(), flush=True)


asyncio.run(main(*sys.argv[1:]))
