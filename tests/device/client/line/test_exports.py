"""Arrays in the hands of NumPy and torch: every dtype and layout is shared, copied or refused, and nothing leaks."""

import contextlib
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests import lazily

import callboard as cb
from callboard.core.dtype import DTYPES

torch = lazily.importorskip("torch", reason="torch is not installed")

A = np.arange(12, dtype="f4").reshape(3, 4)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x,
    "transposed": lambda x: x.T,
    "scalar": lambda x: x[1, 1],
    "empty": lambda x: x[:0],
    "empty and reversed": lambda x: x[:0][::-1],
    "one line, reversed": lambda x: x[1:2][::-1],
    "large steps": lambda x: x[::2, ::3],
}
REVERSED: dict[str, Callable[[Any], Any]] = {"rows": lambda x: x[::-1], "columns": lambda x: x[:, ::-2]}


@pytest.fixture(scope="module")
def cpu() -> Iterator[cb.sync.Device]:
    with cb.sync.device("cpu", isolation="thread") as device:
        device.copy(device.put(np.ones(3))).get()  # its stream and its arena are kept
        yield device


class Anonymous:
    """An exporter in between: the consumer cannot be told from its arguments."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.ref.__dlpack__()


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "numpy": np.from_dlpack,
    "numpy, copied": lambda ref: np.from_dlpack(ref, copy=True),
    "numpy, not recognised": lambda ref: np.from_dlpack(Anonymous(ref)),
    "torch": lambda ref: torch.from_dlpack(ref),
    "torch, of a capsule": lambda ref: torch.utils.dlpack.from_dlpack(ref.__dlpack__()),
    "torch, of a capsule of version 1": lambda ref: torch.utils.dlpack.from_dlpack(ref.__dlpack__(max_version=(1, 0))),
    "nobody": lambda ref: ref.__dlpack__(),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_nothing_stays_behind(cpu: cb.sync.Device, consumer: str) -> None:
    kept = cpu.stats().buffers
    for name in DTYPES:
        low = name in ("bf16", "f8_e4m3", "f8_e5m2", "f4_e2m1")
        for _ in range(3):
            ref = cpu.zeros(3, name)
            refused = low and ("numpy" in consumer or name == "f4_e2m1")
            with pytest.raises((BufferError, RuntimeError)) if refused else contextlib.nullcontext():
                CONSUMERS[consumer](ref)
            del ref
    gc.collect()
    assert cpu.stats().buffers == kept


@pytest.mark.parametrize("name", ["bf16", "f8_e4m3", "f8_e5m2"])
def test_numpy_is_told_what_it_does_not_take(cpu: cb.sync.Device, name: str) -> None:
    ref = cpu.put(A // 4, dtype=name)
    with pytest.raises(BufferError, match=rf"NumPy takes no {name} by DLPack; copy it with ref\.get\(\)"):
        np.from_dlpack(ref)
    tensor = torch.from_dlpack(ref)
    assert tensor.float().tolist() == (A // 4).tolist()
    assert tensor.data_ptr() == ref.raw_device_ptr()
    view = cpu.host_view(ref)
    assert view.dtype == DTYPES[name].np
    assert view.astype("f4").tolist() == (A // 4).tolist()


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_shared(cpu: cb.sync.Device, view: str) -> None:
    ref = VIEWS[view](cpu.put(A))
    for taken in (np.from_dlpack(ref), torch.from_dlpack(ref).numpy()):
        np.testing.assert_array_equal(taken, VIEWS[view](A))
        assert not ref.size or taken.ctypes.data == ref.raw_device_ptr()


@pytest.mark.parametrize("view", REVERSED)
def test_negative_strides_are_for_numpy_only(cpu: cb.sync.Device, view: str) -> None:
    ref, expected = REVERSED[view](cpu.put(A)), REVERSED[view](A)
    np.testing.assert_array_equal(np.from_dlpack(ref), expected)
    np.testing.assert_array_equal(torch.from_dlpack(ref, copy=True).numpy(), expected)
    for refused in (CONSUMERS["torch, of a capsule"], lambda r: r.__dlpack__(dl_device=(1, 0), copy=False)):
        with pytest.raises(BufferError, match=r"no negative strides by DLPack; copy it first, dev\.copy\(ref\)"):
            refused(ref)
    np.testing.assert_array_equal(torch.from_dlpack(cpu.copy(ref)).numpy(), expected)


CHILD = """
import torch, callboard as cb
with cb.sync.device("cpu", isolation="thread") as cpu:
    ref = cpu.zeros((3, 4))
    for view in (ref[::-1], ref[:, ::-2], ref[1, ::-1]):
        for named in ({}, {"device": "cpu", "copy": False}):
            try:
                torch.from_dlpack(view, **named)
            except BufferError:
                print("refused")
"""


@pytest.mark.slow
def test_torch_does_not_end_the_process_at_negative_strides() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == ["refused"] * 6, done.stderr
    assert done.returncode == 0


def test_what_numpy_is_given_is_read_only_where_writes_would_be_lost(cpu: cb.sync.Device) -> None:
    ref = cpu.put(A)
    for given in (np.asarray(ref), np.asarray(ref, "f8"), np.ascontiguousarray(ref), np.asarray(ref[0, 0])):
        assert not given.flags.writeable
    for own in (np.array(ref), np.array(ref, "f8"), ref.get(), ref.__array__(copy=True), np.from_dlpack(ref)):
        assert own.flags.writeable
    np.from_dlpack(ref)[0, 0] = 100  # shared: it arrives
    assert ref.get()[0, 0] == 100
    with pytest.raises(ValueError, match="an array on the host is a copy"):
        np.asarray(ref, copy=False)


def test_no_function_of_numpy_fills_a_copy(cpu: cb.sync.Device) -> None:
    ref, host = cpu.put(A), A.copy()
    into: list[Callable[[], Any]] = [
        lambda: np.add(host, 1, out=ref),
        lambda: np.add(ref, ref, out=ref),
        lambda: np.add.reduce(host, out=ref[0]),
        lambda: np.sqrt(host, out=(ref,)),
        lambda: host.sum(axis=0, out=ref[0]),
        lambda: host.dot(host.T, out=ref),
        lambda: host.clip(0, 1, out=ref),
        lambda: host.take([0], out=ref[0, :1]),
        lambda: np.copyto(ref, host),
        lambda: np.add.at(ref, 0, 1),
        lambda: host.__iadd__(ref),
        lambda: memoryview(ref),
    ]
    for fill in into:
        with pytest.raises(TypeError):
            fill()
    np.testing.assert_array_equal(ref.get(), A)
    np.testing.assert_array_equal(host, A)


def test_scipy_does_not_lose_its_result(cpu: cb.sync.Device) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    out = cpu.zeros((3, 4))
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        ndimage.gaussian_filter(A, 1.0, output=out)
    ndimage.gaussian_filter(A, 1.0, output=np.from_dlpack(out))
    np.testing.assert_array_equal(out.get(), ndimage.gaussian_filter(A, 1.0))
