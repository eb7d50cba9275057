"""Cost of placement: a choice among many devices, a shard lookup, and the shards moved by a change.

    python benchmarks/placement.py --json placement.json
    python benchmarks/placement.py --quick

Times are the least of many runs of this thread's CPU, since what others do on the machine only adds.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable

from _harness import Bar, arguments, interleave, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.multi_device.placement import Candidate, PlacementHints
from callboard.multi_device.placement.book import PlacementBook
from callboard.multi_device.placement.policies import PlacementPolicy, chooser_of
from callboard.multi_device.sharding import PlacementShardingAdapter, ShardTable

DEVICES, SHARDS, PICKS = 64, 1000, 1000


def picks(policy: str, runs: int) -> Callable[[], float]:
    """CPU seconds of a choice with a reservation, among :data:`DEVICES`."""

    def run() -> float:
        least = float("inf")
        for _ in range(runs):
            book = PlacementBook(chooser_of(policy))
            for number in range(DEVICES):
                book.add(Candidate(str(number), "cuda", (9, 0), 1 << 37, 1 << 37))
            hints = PlacementHints(memory_bytes=1 << 20)
            start = time.thread_time()
            for _ in range(PICKS):
                book.pick(hints, 0.0, 10.0)
            least = min(least, (time.thread_time() - start) / PICKS)
            counts = Counter(c.choices for c in book.candidates.values())
            assert max(counts) - min(counts) <= 1 or policy == "pack"
        return least

    return run


async def picks_of_devices(runs: int) -> float:
    """CPU seconds of ``PlacementActor.pick`` over open devices, each with a thread of its own."""
    os.environ["CALLBOARD_CPU_DEVICES"] = str(DEVICES)
    hints = PlacementHints(memory_bytes=1 << 10)
    least = float("inf")
    async with cb.System("placement") as system:
        devices = [await system.device(f"cpu:{n}", isolation="thread", standby=None) for n in range(DEVICES)]
        async with cb.PlacementActor(devices) as placement:
            for _ in range(runs):
                start = time.thread_time()
                choices = [placement.pick(hints) for _ in range(PICKS)]
                least = min(least, (time.thread_time() - start) / PICKS)
                for choice in choices:
                    choice.release()
    return least


def lookups(runs: int) -> Callable[[], float]:
    """CPU seconds of finding the owner of an entity that was looked up before."""

    def run() -> float:
        region = PlacementShardingAdapter("r", [], lambda key: None, shards=SHARDS)  # type: ignore[arg-type, return-value]
        keys = [f"entity-{number}" for number in range(1000)]
        least = float("inf")
        for _ in range(runs):
            start = time.thread_time()
            for key in keys:
                region.owner(key)
            least = min(least, (time.thread_time() - start) / len(keys))
        return least

    return run


def moved(devices: int) -> float:
    """Shards that move when one more device is there, in shares of a device."""
    before = ShardTable.empty(SHARDS).over({f"GPU-{n}": 1.0 for n in range(devices - 1)})
    after = before.over({f"GPU-{n}": 1.0 for n in range(devices)})
    return len(before.moves_to(after)) / (SHARDS / devices)


def heaviest(devices: int) -> float:
    """Shards of the device that has most, in shares."""
    table_of = ShardTable.empty(SHARDS).over({f"GPU-{n}": 1.0 for n in range(devices)})
    return max(Counter(table_of.owners).values()) / (SHARDS / devices)


def main() -> None:
    given = arguments(__doc__, rounds=5)
    runs = 3 if given.quick else 20
    record = Record("placement", given)
    subjects = {str(policy): picks(str(policy), runs) for policy in PlacementPolicy}
    choices = interleave(subjects, given.rounds, "pick")
    record["pick"] = table(f"a choice among {DEVICES} devices", choices, micros, "round_robin")
    picked = interleave({"pick": lambda: asyncio.run(picks_of_devices(runs))}, min(2, given.rounds), "PlacementActor")
    record["PlacementActor.pick"] = table(f"PlacementActor.pick, {DEVICES} CPU devices", picked, micros, "pick")
    found = interleave({"owner": lookups(runs * 5)}, given.rounds, "owner")
    record["owner"] = table("the owner of an entity", found, micros, "owner")
    counts = (2, 4, 8, 16, 32)
    record["moved"] = {n: moved(n) for n in counts}
    record["heaviest"] = {n: heaviest(n) for n in counts}
    print("\nshards that one more device moves, in its shares:", {n: round(moved(n), 3) for n in counts})
    print("shards of the heaviest device, in its shares:", {n: round(heaviest(n), 3) for n in counts})
    slowest = max(spread(values)["median"] for values in choices.values())
    record.done(
        tell_bars(
            [
                Bar(f"slowest policy, a choice among {DEVICES}, us", slowest * 1e6, 20.0, at_least=False),
                Bar(f"PlacementActor.pick, {DEVICES} devices, us", min(picked["pick"]) * 1e6, 20.0, at_least=False),
                Bar("owner of an entity, us", spread(found["owner"])["median"] * 1e6, 1.0, at_least=False),
                Bar("shards that a device more moves, in its shares", max(map(moved, counts)), 1.15, at_least=False),
                Bar("heaviest device, in its shares", max(map(heaviest, counts)), 1.1, at_least=False),
            ]
        )
    )


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"


if __name__ == "__main__":
    main()
