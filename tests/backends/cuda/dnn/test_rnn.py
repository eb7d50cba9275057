"""Recurrent networks by cuDNN, on stand-ins for driver and libcudnn: argument order, compared with the CPU."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_cudnn_rnn import RnnDriver, library_of

from callboard.backends.cuda.dnn import library
from callboard.backends.cuda.dnn.legacy import Cudnn
from callboard.core.errors import NumericalError, UnsupportedOp
from callboard.kernel.dnn.rnn import RnnBackward, RnnForward, RnnForwardTraining, RnnParams
from callboard.kernel.memory import Copy
from callboard.testing.session import LibrarySession

STEPS, BATCH, INPUT, HIDDEN = 5, 4, 8, 16


@pytest.fixture
def cpu() -> Iterator[LibrarySession]:
    with LibrarySession("cpu") as session:
        yield session


@pytest.fixture(params=["cuDNN's order of weights", "callboard's"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSession]:
    driver = RnnDriver()
    host = library_of(driver, request.param == "callboard's")
    monkeypatch.setattr(library, "Cudnn", lambda *_: Cudnn(host))
    with HostSession(driver) as session:
        yield session
    assert not host.alive, "descriptors were not destroyed"


def everything(session: Any, params: RnnParams, layout: Any, lengths: Any, dropout: float) -> dict[str, Any]:
    """All results of the three ops, in f64."""
    rng = np.random.default_rng(5)
    cells, is_lstm = params.num_layers * params.directions, params.mode == "lstm"
    if layout == "packed":
        lengths = (5, 4, 2, 1)
    shape = {"seq_major": (STEPS, BATCH), "batch_major": (BATCH, STEPS), "packed": (12,)}[layout]
    state, cell = (cells, BATCH, params.state_size), (cells, BATCH, HIDDEN)
    put = lambda *shape: session.put(rng.standard_normal(shape))
    given: dict[str, Any] = {
        "x": put(*shape, INPUT),
        "weights": session.put(params.initial_weights(1, "f64")),
        "params": params,
        "hx": put(*state),
        "cx": put(*cell) if is_lstm else None,
        "layout": layout,
        "lengths": lengths,
    }
    said = session.submit(RnnForward(**given))
    trained = session.submit(RnnForwardTraining(**given, dropout=dropout, seed=2**63 + 5, offset=7))
    rest = {"dy": put(*shape, params.output_size), "dh_n": put(*state), "dc_n": put(*cell) if is_lstm else None}
    copy = session.submit(Copy(src=trained.reserve))
    backward = [
        session.submit(RnnBackward(**given, **grads, y=trained.y, reserve=reserve, dropout=dropout))
        for grads, reserve in ((rest, trained.reserve), (rest | {"dy": None}, copy))
    ]
    with pytest.raises(NumericalError, match="used up"):
        session.submit(RnnBackward(**given, **rest, y=trained.y, reserve=trained.reserve, dropout=dropout))
    named = {"said": said, "trained": trained._replace(reserve=None), "one": backward[0], "other": backward[1]}
    return {
        f"{name}.{field}": session.get(ref)
        for name, answer in named.items()
        for field, ref in answer._asdict().items()
        if ref is not None
    }


CASES = [
    (mode, layers, both, proj, lengths, layout, dropout)
    for (mode, proj), (layers, both), (lengths, layout), dropout in itertools.product(
        [("lstm", 0), ("lstm", 8), ("gru", 0)],
        [(1, 0), (2, 1), (3, 0)],
        [(None, "seq_major"), ((2, 5, 1, 4), "seq_major"), ((2, 5, 1, 4), "batch_major"), (None, "packed")],
        [0.0, 0.5],
    )
]


@pytest.mark.parametrize("mode, layers, both, proj, lengths, layout, dropout", CASES[::5])
def test_all_goes_where_it_belongs(
    cpu: LibrarySession, gpu: HostSession, mode: Any, layers: int, both: int, proj: int, lengths: Any, layout: Any,
    dropout: float,
) -> None:  # fmt: skip
    params = RnnParams(mode, INPUT, HIDDEN, layers, ("unidirectional", "bidirectional")[both], proj)  # type: ignore[arg-type]
    want, got = (everything(session, params, layout, lengths, dropout) for session in (cpu, gpu))
    assert want.keys() == got.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


def test_what_cudnn_does_not_have_is_said(gpu: HostSession) -> None:
    params = RnnParams("rnn_relu", INPUT, HIDDEN)
    x = gpu.put(np.zeros((STEPS, BATCH, INPUT)))
    weights = gpu.put(params.initial_weights(0, "f64"))
    with pytest.raises(UnsupportedOp, match="cuDNN has no such network: cudnnSetRNNDescriptor_v8"):
        gpu.submit(RnnForward(x=x, weights=weights, params=params))
    gru = RnnParams("gru", INPUT, HIDDEN)
    weights = gpu.put(gru.initial_weights(0, "f64"))
    with pytest.raises(UnsupportedOp, match=r"x is .*, with gaps or in another order: pass dev.copy\(x\)"):
        gpu.submit(RnnForward(x=gpu.put(np.zeros((INPUT, BATCH, STEPS))).T, weights=weights, params=gru))
    larger = gpu.put(np.zeros(gru.weight_size + 1))
    with pytest.raises(UnsupportedOp, match="weights starts 8 bytes after a multiple of 16"):
        gpu.submit(RnnForward(x=x, weights=larger[1:], params=gru))
