"""An application that takes part in a shared region until it is killed: ``app_process.py ADDRESS TOKEN LOG LEASE``."""

import asyncio
import os
import sys
from pathlib import Path

import callboard as cb
from callboard.device.supervision.remote.host import Address

SHARDS = 16


class Place:
    """A holder with a lease that is shorter than ``cb.Node`` permits."""

    def __init__(self, address: str, token: str, lease: float) -> None:
        host, _, port = address.rpartition(":")
        self.lost_after = lease
        self.address = Address(host, int(port), token)

    async def locate(self) -> Address:
        return self.address


class Logged(cb.ResidentActor):
    """Notes the begin and end of each call in a file of its entity, with its process."""

    def __init__(self, folder: str, key: str) -> None:
        self.path = Path(folder) / key

    def add(self, number: int) -> int:
        with self.path.open("a") as file:
            file.write(f"begin {number} {os.getpid()}\n")
            file.flush()
            sum(range(2000))
            file.write(f"end {number} {os.getpid()}\n")
        return number


async def main(address: str, token: str, folder: str, lease: str) -> None:
    place = Place(address, token, float(lease))
    async with (
        cb.device("cpu") as device,
        cb.PlacementShardingAdapter(
            "logged", [device], lambda key: cb.Props(Logged, folder, key), shards=SHARDS, shared=place
        ) as region,
    ):
        print("joined", flush=True)
        for number in range(1_000_000, 10_000_000):
            await region.entity(str(number % 8)).call(Logged.add, number)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
