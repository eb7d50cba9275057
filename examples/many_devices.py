"""Work and entities over several devices: a burst spreads, and a device leaves while its entities are called."""

import asyncio
import os
import sys
from collections import Counter

import callboard as cb

os.environ.setdefault("CALLBOARD_CPU_DEVICES", "4")  # four devices without a GPU


class Account(cb.ResidentActor):
    """Adds up; a real one would load its balance in setup, and store it."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance


async def main(kind: str) -> None:
    names = [f"cpu:{index}" for index in range(4)] if kind == "cpu" else [kind, "cpu:0"]
    async with cb.System() as system:
        devices = [await system.device(name) for name in names]
        async with cb.PlacementActor(devices) as placement:
            burst = [placement.pick(cb.PlacementHints(memory_bytes=1 << 20)) for _ in range(100)]
            print("a burst of 100:", dict(Counter(choice.device.name for choice in burst)))
            print("ten times the memory:", str(placement.explain(cb.PlacementHints(memory_bytes=1 << 50)))[:100])

        async with cb.PlacementShardingAdapter("accounts", devices, lambda owner: cb.Props(Account, owner)) as accounts:
            owners = [f"owner-{number}" for number in range(200)]
            for owner in owners:
                await accounts.entity(owner).call(Account.deposit, 1)
            print("accounts:", dict(Counter(accounts.entity(owner).device for owner in owners)))
            calls = [accounts.entity(owner).call(Account.deposit, 1) for owner in owners]
            leaving = asyncio.create_task(accounts.remove(devices[0]))
            await asyncio.sleep(0)
            calls += [accounts.entity(owner).call(Account.deposit, 1) for owner in owners]
            await asyncio.gather(*calls)
            await leaving
            print("without", devices[0].name, dict(Counter(accounts.entity(owner).device for owner in owners)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
