"""Arenas themselves: shared, reserved, and errors that say what to do."""

import gc
import mmap
import os
import subprocess
import sys

import pytest

from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.arena.memory import private_arena, shared_arena

linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memfd is Linux only")


@linux
def test_shared_memory_is_shared_and_reserved() -> None:
    arena = shared_arena(1, 1 << 16)
    assert arena.address % mmap.PAGESIZE == 0
    assert os.fstat(arena.descriptor).st_blocks * 512 >= 1 << 16
    with mmap.mmap(arena.descriptor, arena.nbytes) as other:
        other[100] = 7
        assert arena.memory[100] == 7


@linux
def test_the_descriptor_goes_with_the_arena() -> None:
    arena = shared_arena(1, 1 << 16)
    descriptor, memory = arena.descriptor, arena.memory
    del arena
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    memory[:] = 1  # the mapping lives as long as its users


def test_private_memory() -> None:
    arena = private_arena(1, 1 << 16)
    assert arena.descriptor == -1
    assert arena.address % mmap.PAGESIZE == 0
    arena.memory[:] = 3


RESIZE = """
import errno, os, sys
for size in (0, 1 << 15, 1 << 17):
    try:
        os.ftruncate(int(sys.argv[1]), size)
    except OSError as e:
        print(errno.errorcode[e.errno])
"""


@linux
def test_a_process_that_has_the_descriptor_cannot_resize_the_arena() -> None:
    arena = shared_arena(1, 1 << 16)
    command = [sys.executable, "-c", RESIZE, str(arena.descriptor)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, pass_fds=[arena.descriptor])
    assert done.stdout.split() == ["EPERM"] * 3, done.stderr
    arena.memory[:] = 1


# In a process of its own, because the limits below would be this one's.
SHORT = """
import resource, sys
from callboard.core.errors import OutOfMemory
from callboard.device.protocol.arena.memory import private_arena, shared_arena
resource.setrlimit(getattr(resource, sys.argv[2]), (3 << 30, 3 << 30))
import os
before = len(os.listdir("/proc/self/fd"))
try:
    globals()[sys.argv[1]](1, 4 << 30)
except OutOfMemory as e:
    assert isinstance(e, MemoryError) and "4294967296 bytes" in str(e), e
    assert len(os.listdir("/proc/self/fd")) == before
    print("typed")
"""


@linux
@pytest.mark.parametrize("make, limit", [("shared_arena", "RLIMIT_FSIZE"), ("private_arena", "RLIMIT_AS")])
def test_short_memory_is_a_typed_error(make: str, limit: str) -> None:
    command = [sys.executable, "-c", SHORT, make, limit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout.strip() == "typed", done.stderr


def test_without_memfd_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with pytest.raises(BackendUnavailable, match='isolation="thread"'):
        shared_arena(1, 4096)
