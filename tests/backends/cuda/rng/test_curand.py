"""Seeding and positioning of a cuRAND generator, and calls that leave it unchanged; with a stand-in for cuRAND."""

from typing import Any

import pytest

from callboard.backends.cuda.rng.curand import DISCARDED_AT_ONCE, Curand
from callboard.core.backend import Memory
from callboard.core.errors import LibraryError, OutOfMemory, UnsupportedOp
from callboard.kernel.rng.streams import LARGEST_DISCARD


class CurandError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Library:
    """Notes the calls; fails the next one where it is told to."""

    cuRANDError = CurandError  # noqa: N815 - the binding's name

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = 0

    def create_generator(self, code: int) -> int:
        self.calls.append(("create", code))
        return 5

    def __getattr__(self, name: str) -> Any:
        def call(handle: int, *arguments: Any) -> None:
            if self.fails and name in ("generate", "generate_seeds"):
                raise CurandError(self.fails)
            self.calls.append((name.removeprefix("set_pseudo_random_generator_"), *arguments))

        return call

    def taken(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


class Device:
    def __init__(self) -> None:
        self.blocks = 0

    def allocate(self, nbytes: int) -> Memory:
        self.blocks += 1
        return Memory(0x1000, nbytes)

    def release(self, memory: Memory) -> None:
        self.blocks -= 1


class Stream:
    native = 9

    def synchronize(self) -> None:
        pass


@pytest.fixture
def library() -> Library:
    return Library()


def generator(library: Library, kind: str, device: Any = None, ordering: str = "default") -> tuple[Curand, Any]:
    stream: Any = Stream()
    made = Curand(device or Device(), stream, kind, ordering, library)  # type: ignore[arg-type]
    library.taken()
    return made, stream


def test_a_generator_that_skips_is_moved_only_where_it_must(library: Library) -> None:
    g, stream = generator(library, "mrg32k3a")
    g.words(stream, 64, 7, 0, 100)
    assert library.taken() == [("seed", 7), ("set_generator_offset", 0), ("generate", 64, 100)]
    g.words(stream, 64, 7, 100, 50)
    assert library.taken() == [("generate", 64, 50)]
    g.words(stream, 64, 7, 100, 50)
    assert library.taken() == [("set_generator_offset", 100), ("generate", 64, 50)]
    other: Any = Stream()
    g.words(other, 64, 8, 150, 1)
    assert library.taken() == [("set_stream", 9), ("seed", 8), ("set_generator_offset", 150), ("generate", 64, 1)]


def test_the_states_are_set_up_before_the_first_launch(library: Library) -> None:
    stream: Any = Stream()
    g = Curand(Device(), stream, "mrg32k3a", "legacy", library)  # type: ignore[arg-type]
    order = ("set_generator_ordering", 103)
    assert library.taken() == [("create", 121), ("set_stream", 9), order, ("seed", 0), ("generate_seeds",)]
    g.words(stream, 64, 0, 0, 5)
    assert library.taken() == [("generate", 64, 5)]


def test_a_generator_that_cannot_skip_discards_or_begins_again(library: Library) -> None:
    g, stream = generator(library, "mt19937")
    made = [("create", 142), ("set_stream", 9), ("seed", 7), ("generate_seeds",)]
    g.reach(7, 10)
    assert library.taken() == made
    g.words(stream, 64, 7, 10, 5)
    assert library.taken() == [("generate", 0x1000, 10), ("generate", 64, 5)]
    g.reach(7, 15 + DISCARDED_AT_ONCE + 1)
    assert library.taken() == []
    g.words(stream, 64, 7, 15 + DISCARDED_AT_ONCE + 1, 5)
    assert library.taken() == [("generate", 0x1000, DISCARDED_AT_ONCE), ("generate", 0x1000, 1), ("generate", 64, 5)]
    g.reach(7, 3)
    assert library.taken() == [("destroy_generator",), *made]
    g.words(stream, 64, 7, 3, 5)
    assert library.taken() == [("generate", 0x1000, 3), ("generate", 64, 5)]
    with pytest.raises(UnsupportedOp, match="mt19937 cannot skip"):
        g.reach(7, 8 + LARGEST_DISCARD + 1)
    assert library.taken() == []


def test_a_launch_makes_no_generator(library: Library) -> None:
    g, stream = generator(library, "mtgp32")
    with pytest.raises(LibraryError, match="mtgp32 was not brought to position 0 of seed 7"):
        g.words(stream, 64, 7, 0, 5)
    g.reach(7, 0)
    g.words(stream, 64, 7, 0, 5)
    library.taken()
    for seed, position in ((7, 4), (8, 5)):
        with pytest.raises(LibraryError, match="was not brought to"):
            g.words(stream, 64, seed, position, 5)
    assert library.taken() == []


def test_after_a_failure_the_place_is_not_trusted(library: Library) -> None:
    for kind, again in (("mrg32k3a", ("set_generator_offset", 10)), ("mt19937", ("destroy_generator",))):
        g, stream = generator(library, kind)
        g.reach(7, 0)
        g.words(stream, 64, 7, 0, 10)
        library.fails = 201
        with pytest.raises(LibraryError) as caught:
            g.words(stream, 64, 7, 10, 10)
        assert (caught.value.lib, caught.value.code) == ("curand", 201)
        library.fails = 0
        library.taken()
        if kind == "mt19937":
            g.reach(7, 10)
        g.words(stream, 64, 7, 10, 10)
        assert library.taken()[0] == again


def test_want_of_memory_leaves_nothing(library: Library) -> None:
    device = Device()
    library.fails = 102
    with pytest.raises(OutOfMemory, match="curandCreateGenerator: status 102"):
        Curand(device, Stream(), "mrg32k3a", "default", library)  # type: ignore[arg-type]
    assert device.blocks == 0
    library.fails = 0
    g, _ = generator(library, "mrg32k3a", device)
    g.close()
    g.close()
    assert device.blocks == 0
    assert [c[0] for c in library.taken()] == ["destroy_generator"]
