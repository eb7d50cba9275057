import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.kernelcache import MAGIC, KernelCache


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    assert KernelCache().folder == tmp_path / "cuda"
    monkeypatch.delenv("CALLBOARD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert KernelCache().folder == tmp_path / "callboard" / "cuda"


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file")
    with cache.alone("x.bin"):
        cache.keep("x.bin", b"image")
    assert cache.get("x.bin") is None
    KernelCache(tmp_path / "new").keep("x.bin", b"image")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["x.bin"]
    assert KernelCache(tmp_path / "new").get("x.bin") == b"image"


@given(content=st.binary(max_size=64), at=st.integers(0, 1 << 16), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_file_is_a_miss(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, flip: int, cut: bool
) -> None:
    cache = KernelCache(tmp_path_factory.mktemp("cache"))
    cache.keep("x.bin", content)
    path = cache.folder / "x.bin"
    raw = bytearray(path.read_bytes())
    at %= len(raw)
    if cut:
        del raw[at:]
    else:
        raw[at] ^= flip
    path.write_bytes(raw)
    assert cache.get("x.bin") is None
    cache.keep("x.bin", content)
    assert cache.get("x.bin") == content


def test_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    size = len(MAGIC) + 32 + 100
    cache = KernelCache(tmp_path, limit=3 * size)
    for at, name in enumerate("abc"):
        cache.keep(name, bytes(100))
        os.utime(tmp_path / name, (at, at))
    assert cache.get("a") is not None  # and so it was used now
    cache.keep("d", bytes(100))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_a_limit_that_is_no_number_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("CALLBOARD_CACHE_BYTES", "much")
    assert KernelCache().limit == 512 << 20
    assert "CALLBOARD_CACHE_BYTES is 'much', no number of bytes" in caplog.text
    monkeypatch.setenv("CALLBOARD_CACHE_BYTES", "1000")
    assert KernelCache().limit == 1000


WAITING = """
import fcntl, sys
from pathlib import Path
from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.kernelcache import KernelCache

lock = fcntl.flock

def flock(*given):
    print("waits", flush=True)
    lock(*given)

def compiled(*given):
    print("compiles", flush=True)
    return b"second"

fcntl.flock, nvcc._compiled = flock, compiled
nvcc.toolchain = lambda: nvcc.Toolchain("nvcc", Path(), "1")
print(nvcc.built("text", "90a", KernelCache(Path(sys.argv[1]))).decode(), flush=True)
"""


@pytest.mark.parametrize("kept", [True, False])
def test_processes_compile_a_text_once(tmp_path: Path, kept: bool) -> None:
    """A process waits for the one that compiles; if that one fails, it compiles itself."""
    cache = KernelCache(tmp_path)
    name = nvcc._name("text", "90a", nvcc.Toolchain("nvcc", Path(), "1"))
    command = [sys.executable, "-c", WAITING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        with cache.alone(name):
            assert other.stdout.readline() == "waits\n"
            if kept:
                cache.keep(name, b"first")
        told = other.communicate(timeout=60)[0].split()
    assert told[-1] == ("first" if kept else "second")
    assert ("compiles" in told) is not kept
    assert [path.name for path in tmp_path.iterdir()] == [name]
