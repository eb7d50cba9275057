"""Scratch is shared, grows, and goes with the last plan that has it."""

from typing import Any

from callboard.backends.cuda.blas_lt.scratch import Scratch
from callboard.core.backend import Memory


class Device:
    """Counts what is allocated."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self._next = 256

    def allocate(self, nbytes: int) -> Memory:
        self._next += 256
        self.held.add(self._next)
        return Memory(self._next, nbytes, None)

    def release(self, memory: Memory) -> None:
        self.held.remove(memory.address)


def test_plans_share_a_block_until_one_needs_more() -> None:
    device: Any = Device()
    scratch = Scratch(device)
    one, two = scratch.share(1000), scratch.share(500)
    assert one is two
    three = scratch.share(2000)
    assert three is not one
    assert device.held == {one.address, three.address}
    scratch.give_back(one)
    assert one.address in device.held
    scratch.give_back(two)
    assert device.held == {three.address}
    scratch.give_back(three)
    assert not device.held
    assert scratch.share(10).nbytes == 10


def test_closing_frees_what_plans_still_have() -> None:
    device: Any = Device()
    scratch = Scratch(device)
    left = scratch.share(1000)
    scratch.share(3000)
    scratch.close()
    assert not device.held
    scratch.give_back(left)  # a plan that is closed later does no harm
