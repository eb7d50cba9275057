"""Common behaviour of the vendor binding modules; each of them has tests of its own."""

from typing import Any

import pytest

from callboard.backends.cuda.handle import SLOT, Handle
from callboard.backends.cuda.vendor import Vendor, load_binding
from callboard.core.errors import BackendUnavailable, LibraryError, OutOfMemory

FULL = 3


class Status(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Made(Vendor):
    name = "cuLib"
    no_room = (FULL,)


class Held(Handle):
    name = "cuLib"
    no_room = (FULL,)


def fails(error: Exception) -> Any:
    def function(*arguments: Any) -> int:
        raise error

    return function


def test_a_binding_that_is_not_there_is_named_with_what_to_install() -> None:
    with pytest.raises(
        BackendUnavailable, match=r"cuNone cannot be used: .*nvmath.*; pip install .callboard\[cuda13\]"
    ):
        load_binding("no_such_binding", "cuNone")


def test_its_exceptions_become_ours() -> None:
    vendor = Made(None, Status)
    assert vendor.checked("cuLibAdd", lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(OutOfMemory, match="cuLibAdd: status 3"):
        vendor.checked("cuLibAdd", fails(Status(FULL)))
    with pytest.raises(LibraryError, match="cuLibAdd: status 7") as caught:
        vendor.checked("cuLibAdd", fails(Status(7)))
    assert (caught.value.lib, caught.value.code) == ("culib", 7)
    with pytest.raises(ValueError, match="ours"):
        vendor.checked("cuLibAdd", fails(ValueError("ours")))


def test_what_makes_a_handle_tells_a_missing_library_from_one_that_refuses() -> None:
    vendor = Made(None, Status)
    assert vendor.make_handle("cuLibCreate", lambda: 5) == 5
    with pytest.raises(LibraryError, match="cuLibCreate: status 7"):
        vendor.make_handle("cuLibCreate", fails(Status(7)))
    missing = RuntimeError('Failure finding "libcuLib.so.1": No such file: /usr/a/libcuLib.so*, No such file: /b\n/usr')
    with pytest.raises(BackendUnavailable) as caught:
        vendor.make_handle("cuLibCreate", fails(missing))
    assert str(caught.value) == (
        'libcuLib cannot be loaded: Failure finding "libcuLib.so.1"; pip install "callboard[cuda13]"'
    )
    assert caught.value.__cause__ is missing


class Library:
    """A binding that counts handles."""

    def __init__(self) -> None:
        self.alive: list[int] = []

    def create(self) -> int:
        self.alive.append(7)
        return 7

    def destroy(self, handle: int) -> None:
        self.alive.remove(handle)
        raise Status(9)


class Block:
    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes


class Driver:
    def __init__(self) -> None:
        self.written: list[tuple[int, int, int]] = []

    def memset_32(self, address: int, word: int, count: int, stream: int) -> int:
        self.written.append((address, word, stream))
        return 0

    def check(self, code: int, call: str) -> None:
        assert (code, call) == (0, "cuMemsetD32Async")


class Device:
    def __init__(self) -> None:
        self.driver = Driver()
        self.blocks: list[Block] = []
        self._next = 1 << 20

    def allocate(self, nbytes: int) -> Block:
        self.blocks.append(Block(self._next, nbytes))
        self._next += nbytes
        return self.blocks[-1]

    def release(self, block: Block) -> None:
        self.blocks.remove(block)


class Stream:
    native = 11


def test_a_handle_gives_back_its_memory_even_where_the_library_refuses_to_destroy_it() -> None:
    library, device = Library(), Device()
    handle = Held(device, Stream(), library, Status)  # type: ignore[arg-type]
    first = handle.scratch(100)
    assert handle.scratch(100) == first
    larger = handle.scratch(1 << 20)
    assert larger != first
    assert len(device.blocks) == 2, "who has the first one keeps it"
    with pytest.raises(LibraryError, match="cuLibDestroy: status 9"):
        handle.close()
    assert (library.alive, device.blocks) == ([], [])
    handle.close()


def test_numbers_are_written_word_by_word_on_the_stream_of_the_moment() -> None:
    device = Device()
    handle = Held(device, Stream(), Library(), Status)  # type: ignore[arg-type]
    handle.slots = 4096
    write = handle.slot_writer(2, lambda value: int(value).to_bytes(8, "little"))
    other = Stream()
    other.native = 12
    handle.stream = other  # type: ignore[assignment]
    assert write(5 + (6 << 32)) == 4096 + 2 * SLOT
    assert device.driver.written == [(4096 + 2 * SLOT, 5, 12), (4100 + 2 * SLOT, 6, 12)]
