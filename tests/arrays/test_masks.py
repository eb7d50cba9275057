"""No entrance for host arrays leaves out a mask."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.patterns.batching.ragged import Ragged
from callboard.patterns.moe.arrays import array_of

VALUES = np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[True, False, False])
PLACES = np.ma.MaskedArray([0, 1, 2], mask=[True, False, False])
FLAGS = np.ma.MaskedArray([True, True, False], mask=[True, False, False])
Dev = cb.sync.Device

ENTRANCES: dict[str, Callable[[Dev, Any], Any]] = {
    "put": lambda dev, x: dev.put(VALUES),
    "put into": lambda dev, x: dev.put(VALUES, out=x),
    "memcpy": lambda dev, x: dev.memcpy(x, VALUES),
    "array": lambda dev, x: dev.array(VALUES, "f4"),
    "asarray": lambda dev, x: dev.xp.asarray(VALUES),
    "asarray of a list": lambda dev, x: dev.xp.asarray([VALUES, VALUES]),
    "asarray beside a ref": lambda dev, x: dev.xp.asarray([x, VALUES]),
    "from_dlpack": lambda dev, x: dev.xp.from_dlpack(VALUES),
    "full": lambda dev, x: dev.xp.full(3, np.ma.masked),
    "fill": lambda dev, x: dev.fill(x, np.ma.masked),
    "operator": lambda dev, x: x + VALUES,
    "function": lambda dev, x: dev.xp.add(x, VALUES),
    "where": lambda dev, x: dev.xp.where(x > 1, VALUES, x),
    "repeat": lambda dev, x: dev.xp.repeat(x, PLACES),
    "indices": lambda dev, x: x[PLACES],
    "flags": lambda dev, x: x[FLAGS],
    "assigned": lambda dev, x: x.__setitem__(slice(None), VALUES),
    "assigned to one": lambda dev, x: x.__setitem__(0, np.ma.masked),
    "assigned at indices": lambda dev, x: x.__setitem__(PLACES, 1),
    "assigned at flags": lambda dev, x: x.__setitem__(FLAGS, 1),
    "ragged": lambda dev, x: Ragged.of([VALUES]),
    "mixture of experts": lambda dev, x: array_of(VALUES, "x"),
}


@pytest.mark.few(30)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_mask_is_refused(session: Dev, entrance: str) -> None:
    x = session.put(np.arange(3.0))
    with pytest.raises(TypeError):
        ENTRANCES[entrance](session, x)
    assert x.get().tolist() == [0, 1, 2]


def test_values_are_not_written_behind_a_mask(session: Dev) -> None:
    x, out = session.put(np.arange(3.0)), VALUES.copy()
    with pytest.raises(cb.ShapeError, match="masked"):
        x.get(out=out)
    with pytest.raises(cb.ShapeError, match="masked"):
        session.memcpy(out, x)
    assert x.get(out=np.ma.MaskedArray(np.zeros(3))).tolist() == [0, 1, 2]
