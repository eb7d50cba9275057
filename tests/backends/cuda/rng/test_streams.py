"""Every launch of ``CudaRng`` enqueues on the stream it is given, with stand-ins that compute nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_idle import IdleCurand

from callboard.backends.cuda.rng import curand
from callboard.backends.cuda.rng.library import TRANSFORMS, CudaRng
from callboard.kernel import rng
from callboard.kernel.rng.fill import Fill
from callboard.kernel.rng.streams import KINDS

BY_REJECTION: dict[type[Fill], Callable[[HostSession], dict[str, Any]]] = {
    rng.RngFillIntegers: lambda session: {},
    rng.RngFillPoisson: lambda session: {},
    rng.RngFillGamma: lambda session: {"shape": 2.0},
    rng.RngFillBeta: lambda session: {"alpha": 2.0, "beta": 0.5},
    rng.RngFillDiscrete: lambda session: {"weights": session.put(np.ones(5))},
    rng.RngFillPermutation: lambda session: {},
}


@pytest.fixture
def session(idle_session: HostSession, monkeypatch: pytest.MonkeyPatch) -> HostSession:
    stand_in = IdleCurand(idle_session.driver)
    monkeypatch.setattr(curand, "load_curand", lambda: stand_in)
    return idle_session


def fill(session: HostSession, message: type[Fill], kind: str, scattered: bool) -> Fill:
    dtype = next(d for d in message.dtypes if d.name != "f16" and (d.itemsize == 8) == kind.endswith("64"))
    out = session.empty(80, dtype)[::2] if scattered else session.empty(40, dtype)
    return message(
        out=out, kind=kind, seed=3 * KINDS[kind].seeded, position=8, **BY_REJECTION.get(message, lambda _: {})(session)
    )


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize(
    "message, kind",
    [(message, kind) for message in (*TRANSFORMS, *BY_REJECTION) for kind in KINDS if kind in message.kinds],
)
def test_launches_enqueue_where_they_are_told(
    session: HostSession, message: type[Fill], kind: str, scattered: bool
) -> None:
    session.launch_only(fill(session, message, kind, scattered))


def test_every_launch_has_a_case() -> None:
    assert {*TRANSFORMS, *BY_REJECTION} == set(CudaRng.launch_table)
