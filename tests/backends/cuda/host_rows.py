"""``cuMemcpy2DAsync`` and ``cuMemcpy3DAsync`` of the stand-in for the driver."""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

from callboard.backends.cuda.driver import Memcpy2D, Memcpy3D

OnDevice = Callable[[int, int], bool]
"""Whether these bytes are device memory."""


def copy_plane(what: int, on_device: OnDevice) -> None:
    """Copy what a ``CUDA_MEMCPY2D`` at this address says."""
    w = Memcpy2D.from_address(what)
    _copy(w, w.src_pitch * w.height, w.dst_pitch * w.height, 1, on_device)


def copy_box(what: int, on_device: OnDevice) -> None:
    """Copy what a ``CUDA_MEMCPY3D`` at this address says."""
    w = Memcpy3D.from_address(what)
    assert min(w.src_height, w.dst_height) >= w.height
    _copy(w, w.src_pitch * w.src_height, w.dst_pitch * w.dst_height, w.depth, on_device)


def _copy(w: Any, src_plane: int, dst_plane: int, depth: int, on_device: OnDevice) -> None:
    assert w.src_pitch >= w.width
    assert w.dst_pitch >= w.width
    ends = [(w.src_type, w.src_host, w.src_device), (w.dst_type, w.dst_host, w.dst_device)]
    assert all(kind in (1, 2) for kind, _, _ in ends)
    (from_device, src), (to_device, dst) = ((kind == 2, device if kind == 2 else host) for kind, host, device in ends)
    for plane, row in itertools.product(range(depth), range(w.height)):
        a = src + plane * src_plane + row * w.src_pitch
        b = dst + plane * dst_plane + row * w.dst_pitch
        assert not from_device or on_device(a, w.width)
        assert not to_device or on_device(b, w.width)
        ctypes.memmove(b, a, w.width)
