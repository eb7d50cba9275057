"""Stream allocators: sharing of streams."""

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.core.plugins import BUILT_IN
from callboard.device.config import HostConfig
from callboard.device.host.context.streams import streams_for
from callboard.device.strategies.streams import (
    CHAINED,
    ChainedAllocator,
    PerActorAllocator,
    PooledAllocator,
    SingleStreamAllocator,
)


class Device:
    def __init__(self) -> None:
        self.priorities: list[int] = []

    def stream(self, priority: int = 0) -> Any:
        self.priorities.append(priority)
        return SimpleNamespace(query=lambda: True)


def made(**options: Any) -> tuple[Any, Device]:
    device = Device()
    return streams_for(device, HostConfig(**options)), device  # type: ignore[arg-type]


def test_libraries_whose_ops_follow_one_another_share_a_stream() -> None:
    allocator, device = made(priorities={"rng": 1})
    assert type(allocator._allocator) is ChainedAllocator
    shared = allocator.acquire("blas")
    assert allocator.acquire("elementwise") is shared
    others = [allocator.acquire(name) for name in ("memory", "solver", "rng", "tests.Model")]
    assert len({id(t) for t in (shared, *others)}) == 5
    assert device.priorities == [0, 0, 0, 1, 0]
    allocator.release(shared)  # a library that cannot be made: the others are still there
    assert allocator.acquire("tensor") is shared


def test_the_chained_libraries_exist() -> None:
    assert set(BUILT_IN) >= CHAINED - {"attention", "dnn"}


def test_each_actor_has_its_own_stream_with_its_priority() -> None:
    allocator, device = made(streams="per_actor", priorities={"blas": 1})
    assert type(allocator._allocator) is PerActorAllocator
    timelines = [allocator.acquire(name) for name in ("memory", "blas")]
    assert len({id(t) for t in timelines}) == 2
    assert device.priorities == [0, 1]
    assert allocator.timelines == timelines


def test_all_share_a_single_stream() -> None:
    allocator, device = made(streams="single", priorities={"blas": 1})
    assert type(allocator._allocator) is SingleStreamAllocator
    assert len({id(allocator.acquire(name)) for name in ("memory", "blas", "fft")}) == 1
    assert len(device.priorities) == 1


def test_a_pool_is_used_in_turn_and_priorities_get_their_own() -> None:
    allocator, device = made(streams="pooled", pooled_streams=2, priorities={"urgent": -1})
    assert type(allocator._allocator) is PooledAllocator
    timelines = [allocator.acquire(f"actor {k}") for k in range(5)]
    assert [timelines.index(t) for t in timelines] == [0, 1, 0, 1, 0]
    own = allocator.acquire("urgent")
    assert own not in timelines
    assert device.priorities == [0, 0, -1]
    assert len(allocator.timelines) == 3


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"size of a PooledAllocator \(pooled_streams\) is 0; it is a whole number",
    ):
        made(streams="pooled", pooled_streams=0)
