"""The calls in turn are read while other threads add some."""

from collections.abc import Iterator

from callboard.device.client.residents.resident import oldest


class Grows(dict[int, bool]):
    """Another thread adds a call right after the dictionary was begun to be read, as often as there are ids left."""

    def __init__(self, added: list[int]) -> None:
        super().__init__({1: False, 2: False})
        self.added = added

    def __iter__(self) -> Iterator[int]:
        begun = super().__iter__()
        if self.added:
            self[self.added.pop(0)] = False
        return begun


def test_a_call_that_is_added_meanwhile_does_no_harm() -> None:
    calls = Grows([3, 4])
    assert oldest(calls, 2) == (1, 2)
    assert list(calls) == [1, 2, 3, 4]


def test_fewer_calls_than_are_asked_for() -> None:
    assert oldest({7: False}, 3) == (7,)
