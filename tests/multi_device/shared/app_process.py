"""An application that takes part in a shared region until it is killed: ``app_process.py ADDRESS TOKEN FOLDER LEASE``.

With the address ``ray``, the region and its device are those of a Ray cluster.
"""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.device.supervision.remote.host import Address

SHARDS = 16
OTHERS = 1_000_000
"""The first number of another application."""


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


def logged(devices: list[cb.Device], folder: str, place: Any) -> "cb.PlacementShardingAdapter[Logged]":
    """The region."""
    return cb.PlacementShardingAdapter(
        "logged", devices, lambda key: cb.Props(Logged, folder, key), shards=SHARDS, shared=place
    )


async def load(region: "cb.PlacementShardingAdapter[Logged]", at_half: Callable[[], Any], folder: str) -> None:
    """Make 600 calls of 8 entities, and check what the log says of them and of other applications' calls."""
    calls: list[asyncio.Future[int]] = []
    for number in range(600):
        calls.append(region.entity(str(number % 8)).call(Logged.add, number))
        if number == 300:
            await calls[200]
            at_half()
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    lost = [end for end in outcomes if isinstance(end, BaseException)]
    assert all(isinstance(end, cb.ContextLost) for end in lost), lost
    check(folder, [number for number, end in enumerate(outcomes) if end == number])


def check(folder: str, answered: list[int]) -> None:
    """Each call was executed once at most, none beside another of its entity, and those of one caller in order."""
    done: set[int] = set()
    for path in Path(folder).iterdir():
        lines = [line.split() for line in path.read_text().splitlines()]
        begun = [int(number) for what, number, _ in lines if what == "begin"]
        assert len(begun) == len(set(begun))
        for (what, number, pid), (later, after, other) in itertools.pairwise(lines):
            if what == "begin":  # ends before the next, unless its process was killed
                assert (later, after, other) == ("end", number, pid) or other != pid
        done |= {int(number) for what, number, _ in lines if what == "end"}
        of_one = [number for number in begun if number < OTHERS]
        assert of_one == sorted(of_one)
    assert done >= set(answered)


@contextlib.asynccontextmanager
async def placed(address: str, token: str, lease: float) -> AsyncIterator[tuple[Any, cb.Device]]:
    """The place of the table, and a device."""
    if address != "ray":
        async with cb.device("cpu") as device:
            yield Place(address, token, lease), device
        return
    async with cb.cluster("auto", lost_after=lease) as cluster:
        yield cluster, await cluster.device("cpu")


async def main(address: str, token: str, folder: str, lease: str) -> None:
    async with placed(address, token, float(lease)) as (place, device), logged([device], folder, place) as region:
        print("joined", flush=True)
        for number in itertools.count(OTHERS):
            with contextlib.suppress(cb.ContextLost):
                await region.entity(str(number % 8)).call(Logged.add, number)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
