"""That every message of deep learning runs, on small arrays of each layout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dnn_lab import drawn

from callboard.core.op import OPS
from callboard.kernel import dnn

CASES: dict[type[Any], Callable[[Any], Any]] = {
    dnn.AvgPool: lambda s: dnn.AvgPool(x=image(s), window=2),
    dnn.AvgPoolBackward: lambda s: dnn.AvgPoolBackward(dy=image(s, 2, 4, 3, 3), shape=(2, 4, 6, 6), window=2),
    dnn.Conv: lambda s: dnn.Conv(x=image(s), w=image(s, 8, 4, 3, 3)),
    dnn.ConvBackwardData: lambda s: dnn.ConvBackwardData(
        dy=image(s, 2, 8, 4, 4), w=image(s, 8, 4, 3, 3), shape=(2, 4, 6, 6)
    ),
    dnn.ConvBackwardFilter: lambda s: dnn.ConvBackwardFilter(x=image(s), dy=image(s, 2, 8, 4, 4), shape=(8, 4, 3, 3)),
    dnn.ConvTranspose: lambda s: dnn.ConvTranspose(x=image(s, 2, 8, 4, 4), w=image(s, 8, 4, 3, 3)),
    dnn.MaxPool: lambda s: dnn.MaxPool(x=image(s), window=2),
    dnn.MaxPoolBackward: lambda s: dnn.MaxPoolBackward(
        dy=image(s, 2, 4, 3, 3), indices=s.put(np.zeros((2, 4, 3, 3), np.int32)), shape=(2, 4, 6, 6), window=2
    ),
    dnn.MaxPoolIndices: lambda s: dnn.MaxPoolIndices(x=image(s), window=2),
}


def image(session: Any, *shape: int) -> Any:
    return session.put(drawn(3, shape or (2, 4, 6, 6), "f32"))


@pytest.mark.parametrize("op", sorted({c for t, c in OPS.items() if t.startswith("dnn.")}, key=lambda c: c.__name__))
def test_every_message_runs(session: Any, op: Any) -> None:
    replies = session.submit(CASES[op](session))
    for reply in replies if isinstance(replies, tuple) else (replies,):
        assert np.isfinite(session.get(reply).astype(np.float64)).all()
