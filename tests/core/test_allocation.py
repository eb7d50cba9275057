"""``Allocation``: the end of a buffer, whichever threads bring it about."""

from tests.together import together

from callboard.core.ref import Allocation
from callboard.device.client.residents.caller import SharedAllocation


def test_threads_free_it_once() -> None:
    for number in range(300):
        released: list[int] = []
        allocation = Allocation(number, released)
        together(allocation.free, [()] * 4)
        assert released == [number]


def test_a_freed_one_cannot_be_pinned() -> None:
    released: list[int] = []
    allocation = Allocation(7, released)
    assert allocation.pin()
    allocation.free()
    assert not allocation.pin()
    assert released == []
    allocation.unpin()
    assert released == [7]


def test_one_that_an_actor_lent_is_freed_as_often_as_it_came() -> None:
    released: list[int] = []
    lent = SharedAllocation(7, released)
    assert lent.issue()
    assert lent.pin()
    lent.free()
    lent.free()
    assert released == []  # a consumer of DLPack still has it
    assert not lent.issue()
    lent.unpin()
    assert released == [7, 7]
