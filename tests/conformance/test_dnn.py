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
    dnn.RnnForward: lambda s: dnn.RnnForward(**recurrent(s)),
    dnn.RnnForwardTraining: lambda s: dnn.RnnForwardTraining(**recurrent(s)),
    dnn.RnnBackward: lambda s: trained(s),
}


def image(session: Any, *shape: int) -> Any:
    return session.put(drawn(3, shape or (2, 4, 6, 6), "f32"))


def recurrent(session: Any) -> dict[str, Any]:
    params = dnn.RnnParams("lstm", 8, 16)
    weights = session.put(drawn(4, (params.weight_size,), "f32"))
    return {"x": session.put(drawn(3, (5, 2, 8), "f32")), "weights": weights, "params": params}


def trained(session: Any) -> Any:
    given = recurrent(session)
    made = session.submit(dnn.RnnForwardTraining(**given))
    return dnn.RnnBackward(**given, y=made.y, reserve=made.reserve, dy=made.y)


@pytest.mark.parametrize("op", sorted({c for t, c in OPS.items() if t.startswith("dnn.")}, key=lambda c: c.__name__))
def test_every_message_runs(session: Any, op: Any) -> None:
    replies = session.submit(CASES[op](session))
    for reply in replies if isinstance(replies, tuple) else (replies,):
        assert np.isfinite(session.get(reply).astype(np.float64)).all()
