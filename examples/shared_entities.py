"""Two applications reach the same entities, on the devices of both; one of them is killed, and its entities move.

The table of the region is held by ``callboard host``; with a ``cb.cluster`` in place of ``cb.Node``, by the cluster.
"""

import asyncio
import os
import secrets
import subprocess
import sys

import callboard as cb


class Account(cb.ResidentActor):
    """A real one would load and store its balance, with the fence that its Props can be given."""

    def __init__(self, owner: str, application: int) -> None:
        self.application = application
        self.balance = 0

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.application


def account(owner: str) -> cb.Props[Account]:
    return cb.Props(Account, owner, os.getpid())


async def application(kind: str, address: str, first: bool) -> None:
    holder = cb.Node(address, token=os.environ["CALLBOARD_NODE_TOKEN"], lost_after=2.0)
    region = cb.PlacementShardingAdapter("accounts", [], account, shared=holder)
    async with cb.device(kind) as device, region:
        await region.add(device)
        if not first:
            print("takes part", flush=True)
            await asyncio.Event().wait()  # until it is killed
        second = await asyncio.create_subprocess_exec(sys.executable, __file__, kind, address, stdout=subprocess.PIPE)
        await second.stdout.readline()  # type: ignore[union-attr]
        for text in ("of both", "of the first"):
            calls = [region.entity(owner).call(Account.deposit, 1) for owner in "abcdefghijkl"]
            served = await asyncio.gather(*calls, return_exceptions=True)  # ContextLost: it may have been executed
            processes = {one for one in served if isinstance(one, int)}
            print(f"entities on devices {text}: answers of {len(processes)}")
            if second.returncode is None:
                second.kill()
                await second.wait()


if __name__ == "__main__":
    kind, *rest = sys.argv[1:] or ["cpu"]
    if rest:
        asyncio.run(application(kind, rest[0], first=False))
        sys.exit()
    os.environ["CALLBOARD_NODE_TOKEN"] = secrets.token_urlsafe(32)
    command = [sys.executable, "-m", "callboard", "host", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as host:
        address = host.stdout.readline().split()[2].rstrip(",")  # type: ignore[union-attr]
        asyncio.run(application(kind, address, first=True))
        host.terminate()
