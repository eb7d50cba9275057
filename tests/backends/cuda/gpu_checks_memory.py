"""Fills and copies of every dtype on a GPU."""

import time
from typing import Any

import numpy as np
from gpu_checks import check, each, same_bytes, values

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.kernel.memory import Copy, Fill
from callboard.testing.session import LibrarySession, SessionArray

ALL = [*DTYPES]
SHAPES = [(), (1,), (7,), (64, 33), (3, 5, 7, 2), (0, 4)]


@each(ALL)
def upload_download(s: LibrarySession, dtype: str) -> None:
    for shape in SHAPES:
        x = values(shape, dtype)
        same_bytes(s.get(s.put(x)), x)


def views(x: Any) -> list[Any]:
    """The same views of a NumPy array and of one on the device, both [12, 10, 6]."""
    return [x[2:9], x[:, 1:8], x[:, :, 3], x[::2, ::3, ::-1], x[::-1], x.T, x[3:8, 2:9:2, 1:5].T, x[4, 3, 2:], x[:, 4]]


@each(ALL)
def strided_copies(s: LibrarySession, dtype: str) -> None:
    base = values((12, 10, 6), dtype)
    on_device = s.put(base)
    for mine, theirs in zip(views(on_device), views(base), strict=True):
        same_bytes(s.get(s.submit(Copy(src=mine))), theirs)
        room, room_host = s.put(base), base.copy()
        shape = theirs.shape
        for target, target_host in zip(views(room), views(room_host), strict=True):
            if target.shape == shape:
                s.submit(Copy(src=mine, out=target))
                target_host[...] = theirs
        same_bytes(s.get(room), room_host)


@check
def many_axes_and_broadcasts(s: LibrarySession) -> None:
    base = values((3,) * 8, "f32")
    x = s.put(base)
    order = (3, 1, 7, 5, 0, 2, 6, 4)
    turned = layout_of(x.dtype, base.transpose(order).shape, tuple(x.strides[k] for k in order))
    same_bytes(s.get(s.submit(Copy(src=SessionArray(x.block, turned)))), base.transpose(order))
    row = s.put(values((6,), "c128"))
    spread = SessionArray(row.block, layout_of(row.dtype, (5, 6), (0, 1)))
    same_bytes(s.get(s.submit(Copy(src=spread))), np.broadcast_to(s.get(row), (5, 6)))


@check
def big_copies_and_transposes(s: LibrarySession) -> str:
    n = 8192
    x = s.put(values((n, n), "f32"))
    out = s.empty((n, n))
    host = s.get(x)
    report = []
    for name, src in (("contiguous", x), ("rows", x[:, : n - 32]), ("transposed", x.T), ("every other", x[:, ::2])):
        target = out if src.shape == out.shape else out[:, : src.shape[1]]
        s.submit(Copy(src=src, out=target))
        start = time.perf_counter()
        s.submit(Copy(src=src, out=target))
        report.append(f"{name} {2 * src.nbytes / (time.perf_counter() - start) / 1e9:.0f} GB/s")
    s.submit(Copy(src=x.T, out=out))
    same_bytes(s.get(out), host.T)
    return ", ".join(report)


NUMBERS = {"float": (0.0, -0.0, 1.5, -3.0, float("inf"), float("nan")), "complex": (0.0, 1.5 - 2.0j, 3.0)}


@each(ALL)
def fills(s: LibrarySession, dtype: str) -> None:
    kind = DTYPES[dtype].kind
    for number in NUMBERS.get(kind, (0.0, 1.0, 5.0) + ((-2.0,) if kind == "int" else ())):
        if not np.array_equal(np.asarray(number).astype(DTYPES[dtype].np).astype(complex), number, equal_nan=True):
            continue  # no number of this dtype: it is refused
        x = s.put(np.zeros((12, 10, 6), DTYPES[dtype].np))
        want = np.zeros((12, 10, 6), DTYPES[dtype].np)
        for mine, theirs in zip(views(x), views(want), strict=True):
            s.submit(Fill(out=mine, fill_value=number))
            theirs[...] = number
            same_bytes(s.get(x), want)


@each(ALL)
def fills_from_the_device(s: LibrarySession, dtype: str) -> None:
    for source in ALL:
        if DTYPES[source].is_complex and not DTYPES[dtype].is_complex:
            continue
        both_float = DTYPES[source].is_float and DTYPES[dtype].is_float
        special = (0.1, 2.75, 1e-3, 250.0, 500.0, float("inf")) if both_float else ()
        for number in (0, 1, 3, *special) + ((-2,) if DTYPES[source].is_signed and DTYPES[dtype].is_signed else ()):
            value = np.asarray(number).astype(DTYPES[source].np)
            x = s.empty((4, 6), dtype)
            s.submit(Fill(out=x.T[::-1], fill_value=s.put(value)))
            same_bytes(s.get(x), np.broadcast_to(value.astype(DTYPES[dtype].np), (4, 6)))
