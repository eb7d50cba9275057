"""Transforms recorded as CUDA graphs, and launched again when the library has another workspace."""

from typing import Any

import numpy as np
import pytest

from callboard.core.op import info_of
from callboard.kernel.fft import Fft, Irfft
from callboard.kernel.memory import Fill
from callboard.testing.session import LibrarySession

SENTINEL = 0x5A


def spectrum(rows: int) -> Any:
    rng = np.random.default_rng(rows)
    return np.fft.rfftn(rng.standard_normal((rows, rows))).astype(np.complex64)


@pytest.mark.gpu
@pytest.mark.parametrize("launches", [1, 3])
def test_a_graph_is_launched_again_after_a_larger_plan(launches: int) -> None:
    """It works where it did when it was recorded, in memory that is nobody else's."""
    with LibrarySession("cuda") as session:
        x = spectrum(512)
        at_x, out = session.put(x), session.empty((512, 512))
        op = Irfft(x=at_x, out=out, axes=(0, 1))  # cuFFT spoils its input: a copy of it lies in the workspace
        want = session.get(session.submit(op))
        np.testing.assert_allclose(want, np.fft.irfftn(x), atol=1e-5)
        plan = session._plan(info_of(Irfft).split(op).signature)
        stream: Any = plan.stream
        graph = stream.capture(lambda: plan.launch(stream, plan.state, at_x.address, out.address))
        library: Any = session._library("fft")
        base = library.workspace.lease(0).memory.address
        session.submit(Irfft(x=session.put(spectrum(2048)), axes=(0, 1)))
        assert library.workspace.lease(0).memory.address != base, "the larger plan needs a larger workspace"
        others = [session.put(np.full(x.nbytes, SENTINEL, np.uint8)) for _ in range(16)]
        for _ in range(launches):
            session.submit(Fft(x=session.put(np.ones(4096, np.complex64))))  # another one, in the workspace of now
            session.submit(Fill(out=out, fill_value=float("nan")))
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(session.get(out), want)
        for other in others:
            assert (session.get(other) == SENTINEL).all(), "the graph wrote into memory of others"
        graph.close()
