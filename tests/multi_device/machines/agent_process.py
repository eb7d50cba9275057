"""An agent as a process of its own: reads its token, says its port, and ends with its input."""

import asyncio
import os
import sys
import threading

from callboard.multi_device.machines.agent import NodeAgent
from callboard.multi_device.machines.engine import NodeTls


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


async def main() -> None:
    files = sys.argv[1:]
    tls = NodeTls(cafile="", certfile=files[0], keyfile=files[1]) if files else None
    agent = NodeAgent(sys.stdin.readline().strip(), tls)
    print(await agent.serve("127.0.0.1"), flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    await agent.live()


if __name__ == "__main__":
    asyncio.run(main())
