"""Assignment of shards to devices: bounded, and with few moves."""

import math
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.multi_device.sharding import ShardTable, shard_of
from callboard.multi_device.sharding.table import BOUND

NAMES = [f"GPU-{index}" for index in range(12)]


def even(count: int) -> dict[str, float]:
    return dict.fromkeys(NAMES[:count], 1.0)


@given(
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=6), st.sampled_from([1, 7, 256, 1000])
)
def test_no_device_has_more_than_its_bound_and_only_what_must_moves(changes: list[set[str]], shards: int) -> None:
    table = ShardTable.empty(shards)
    for devices in changes:
        after = table.over(dict.fromkeys(sorted(devices), 1.0))
        mean = shards / len(devices)
        load = Counter(after.owners)
        assert set(after.owners) <= devices
        assert max(load.values()) <= max(BOUND * mean, -(-shards // len(devices)))
        assert after.version == table.version + 1
        for move in table.moves_to(after):
            gone = move.source is None or move.source not in devices
            assert gone or load[move.source] >= math.floor(mean / BOUND)  # nothing is taken of what has too few
            assert after.owners[move.shard] == move.target
        assert table.over(dict.fromkeys(sorted(devices), 1.0)) == after  # the same from the same
        assert after.over(dict.fromkeys(sorted(devices), 1.0)).owners == after.owners
        table = after


@pytest.mark.parametrize("devices", range(2, 12))
def test_a_device_more_moves_at_most_its_share_and_only_to_itself(devices: int) -> None:
    before = ShardTable.empty(1000).over(even(devices - 1))
    moves = before.moves_to(before.over(even(devices)))
    assert {move.target for move in moves} == {NAMES[devices - 1]}
    assert 0.85 * 1000 / devices <= len(moves) <= 1.15 * 1000 / devices


@pytest.mark.parametrize("devices", range(2, 12))
def test_a_device_less_moves_its_shards_only(devices: int) -> None:
    before = ShardTable.empty(1000).over(even(devices))
    moves = before.moves_to(before.over(even(devices - 1)))
    assert {move.source for move in moves} >= {NAMES[devices - 1]}
    assert len(moves) <= 1.15 * 1000 / devices
    load = Counter(before.over(even(devices - 1)).owners)
    assert max(load.values()) <= max(BOUND * 1000 / (devices - 1), -(-1000 // (devices - 1)))


def test_weights() -> None:
    load = Counter(ShardTable.empty(900).over({"big": 2.0, "small": 1.0}).owners)
    assert 600 / BOUND <= load["big"] <= 600 * BOUND
    with pytest.raises(ValueError, match="the weight of big must be a positive number, but is 0"):
        ShardTable.empty(9).over({"big": 0.0})
    with pytest.raises(ValueError, match="shards must be at least 1"):
        ShardTable.empty(0)


def test_without_devices_nothing_is_owned() -> None:
    table = ShardTable.empty(3).over(even(2)).over({})
    assert table.owners == (None, None, None)
    assert ShardTable.empty(3).over(even(2)).moves_to(table) == []


def test_hashes_are_the_same_in_every_process() -> None:
    program = "from callboard.multi_device.sharding import shard_of; print([shard_of(str(i), 256) for i in range(20)])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.strip() == str([shard_of(str(i), 256) for i in range(20)])
