"""Every message of deep learning runs, on small arrays."""

from typing import Any

import numpy as np
import pytest
from dnn_lab import drawn
from sessions import serving
from tests.kernel import computed

from callboard.core.op import OPS
from callboard.kernel import dnn


def trained(session: Any) -> Any:
    """The pass backwards needs what a pass forwards has kept."""
    params = dnn.RnnParams("lstm", 8, 16)
    weights = session.put(drawn(4, (params.weight_size,), "f32"))
    given = {"x": session.put(drawn(3, (5, 2, 8), "f32")), "weights": weights, "params": params}
    made = session.submit(dnn.RnnForwardTraining(**given))
    return dnn.RnnBackward(**given, y=made.y, reserve=made.reserve, dy=made.y)


@pytest.mark.parametrize("op", sorted({c for t, c in OPS.items() if t.startswith("dnn.")}, key=lambda c: c.__name__))
def test_every_message_runs(session: Any, op: Any) -> None:
    library = serving(session, op)
    message = (
        trained(session)
        if op is dnn.RnnBackward
        else computed.message_of(session, op, library, ("f32",), computed.drawn)
    )
    replies = session.submit(message)
    for reply in replies if isinstance(replies, tuple) else (replies,):
        if reply is not None:
            assert np.isfinite(session.get(reply).astype(np.float64)).all()
