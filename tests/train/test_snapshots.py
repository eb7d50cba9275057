"""``Snapshots``: when the next one is due; states that are none."""

import numpy as np
import pytest

from callboard.core.errors import ContextLost
from callboard.train.replicas.snapshots import COST, SHARE, SPEED, Snapshots
from callboard.train.states import Kept, State, check_alike


def state(step: int, nbytes: int = 0) -> State:
    return State(step, step, b"", [np.zeros(nbytes, "u1")], ["uint8"])


def test_an_early_snapshot_is_worth_its_time() -> None:
    kept = Snapshots(3)
    kept.take(Kept([state(0, 10**6)]))
    enough = SHARE * (COST + 10**6 / SPEED)
    kept.keep("a", 1.0, 0.9 * enough)
    assert not kept.due(early=True)
    kept.keep("b", 1.0, 0.2 * enough)
    assert kept.due(early=True)
    assert not kept.due(early=False)
    kept.keep("c", 1.0, 0.0)
    assert kept.due(early=False)
    kept.take(Kept([state(3)]))
    assert not kept.due(early=True)


def test_parts_of_different_steps_are_no_state() -> None:
    check_alike([state(2), state(2)])
    with pytest.raises(ContextLost):
        check_alike([state(2), state(-1)])
