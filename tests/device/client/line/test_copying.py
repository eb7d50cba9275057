"""Copies by several threads are copies."""

import threading

import numpy as np
import pytest

from callboard.device.client.line import copying
from callboard.device.client.line.copying import SLICE, Copier


@pytest.mark.parametrize("width", [1, 3, 4])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, SLICE), (7 * SLICE + 13,), (2, 2 * SLICE)])
def test_every_byte_arrives(monkeypatch: pytest.MonkeyPatch, width: int, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(copying, "WIDTH", width)
    source = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    target = np.empty_like(source)
    copier = Copier()
    copier.copy(target, source)
    np.testing.assert_array_equal(target, source)
    copier.close()


def test_later_copies_keep_their_order_and_close_finishes_them() -> None:
    copier = Copier()
    target = np.zeros(4 * SLICE, np.uint8)
    order: list[int] = []
    for k in range(8):
        copier.later(target, np.full_like(target, k), lambda k=k: order.append(k))
    copier.close()
    assert order == list(range(8))
    assert (target == 7).all()
    assert not [t for t in threading.enumerate() if t.name.startswith(("callboard-copies", "callboard-slices"))]
