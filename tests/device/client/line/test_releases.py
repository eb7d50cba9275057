"""Buffers without a ref on their way to the host: which of them wait for others."""

import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from tests.together import together

from callboard.device.client.line import releases as module
from callboard.device.client.line.releases import FEW, Releases


@pytest.fixture
def releases() -> Iterator[Releases]:
    made = Releases()
    yield made
    made.close()


def test_a_large_buffer_is_freed_before_the_next_call(releases: Releases) -> None:
    assert not releases.pressing
    releases.append(7)
    assert releases.pressing
    assert list(releases.ids) == [7]


def test_small_buffers_wait_for_a_few_others(releases: Releases) -> None:
    for buffer in range(FEW - 1):
        releases.small.append(buffer)
        assert not releases.pressing
    releases.small.append(FEW)
    assert releases.pressing
    assert list(releases.ids) == [*range(FEW - 1), FEW]


def test_small_buffers_wait_for_none_where_frees_have_fixed_places(releases: Releases) -> None:
    releases.few = 1
    releases.small.append(1)
    assert releases.pressing


def test_the_descriptor_is_not_closed_while_a_thread_writes_to_it(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number could be that of another file by then."""

    def other() -> bool:
        if free := releases._using.acquire(blocking=False):
            releases._using.release()
        return free

    free: list[bool] = []
    stub = SimpleNamespace(write=lambda *_: free.extend(together(other, [()])), close=os.close)
    with monkeypatch.context() as patch:
        patch.setattr(module, "os", stub)
        releases.append(7)
    assert free == [False]
