"""The custom kernels as they are: compiled by g++ and run on host memory, thread by thread, against the CPU backend.

The conformance suites show the numbers on a GPU; here it is where each thread reads and writes, what its barriers
order, and every launch on whatever machine has a compiler.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from host_backend import HostSession
from tests.kernel import computed

from callboard.core.op import OPS
from callboard.kernel import dnn
from callboard.testing.session import LibrarySession
from gpu_check.groups import ops_of

Array = np.ndarray[Any, Any]
OURS = sorted(
    (
        op
        for tag, op in OPS.items()
        if tag.startswith("dnn.") and not op.__name__.startswith(("Avg", "Max", "Conv", "Rnn", "Fused"))
    ),
    key=lambda op: op.__name__,
)
QUICK = (dnn.LayerNormBackward, dnn.CrossEntropyBackward, dnn.TopKBackward)
"""Compiled in every run; the others in one of all tests."""


@pytest.fixture
def cpu() -> Iterator[LibrarySession]:
    with LibrarySession("cpu") as session:
        yield session


def alike(host: HostSession, cpu: LibrarySession, make: Callable[[Any], Any], tolerance: float = 2e-5) -> Any:
    """Both backends give the same."""
    got, want = host.submit(make(host)), cpu.submit(make(cpu))
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
        if other is not None:
            wide = host.get(one).astype("f8"), cpu.get(other).astype("f8")
            np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance * np.abs(wide[1]).max(initial=1))
    return got


@pytest.mark.parametrize(
    "op", [pytest.param(op, id=op.__name__, marks=[] if op in QUICK else [pytest.mark.slow]) for op in OURS]
)
@pytest.mark.few(1)
def test_every_kernel(host: HostSession, cpu: LibrarySession, op: Any) -> None:
    library = ops_of("cpu")[op]
    alike(host, cpu, lambda s: computed.message_of(s, op, library, ("f32",), computed.drawn))


@pytest.mark.parametrize(
    "op", [dnn.ActivationBackward, pytest.param(dnn.Softmax, marks=pytest.mark.slow)], ids=lambda op: op.__name__
)
def test_a_result_is_scaled_and_added(host: HostSession, cpu: LibrarySession, op: Any) -> None:
    def accumulated(session: Any, **factors: Any) -> Any:
        one = computed.message_of(session, op, ops_of("cpu")[op], ("f32",), computed.drawn)
        into = session.put(computed.drawn(one.x.layout))
        return msgspec.structs.replace(one, addend=into, **{op.returns[0]: into}, **factors)

    alike(host, cpu, lambda s: accumulated(s, alpha=-2.0, beta=0.5))
    if op is dnn.Softmax:
        alike(host, cpu, lambda s: accumulated(s, alpha=3.0, beta=0.0))


def drawn(shape: tuple[int, ...], dtype: str = "f4", seed: int = 0) -> Array:
    found: Array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return found


@pytest.mark.slow
def test_rows_of_two_warps_that_share_a_block(host: HostSession, cpu: LibrarySession) -> None:
    """64 threads a row, two rows a block: each row has sums of its own."""
    x = drawn((3, 1002)) * np.array([[1], [10], [100]], "f4")
    alike(host, cpu, lambda s: dnn.LayerNormTraining(x=s.put(x)))
    alike(host, cpu, lambda s: dnn.Softmax(x=s.put(x)))
    alike(host, cpu, lambda s: dnn.CrossEntropy(x=s.put(x), target=s.put(np.array([5, 1001, 0]))))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 9001), (70, 8), (5, 1), (2, 33000)])
def test_rows_in_registers_and_too_long_for_them(
    host: HostSession, cpu: LibrarySession, shape: tuple[int, int]
) -> None:
    x, dy, scale = drawn(shape), drawn(shape, seed=1), drawn(shape[1:], seed=2)
    mean, inverse = x.mean(-1), (1 / np.sqrt(x.var(-1) + 1e-5)).astype("f4")
    alike(host, cpu, lambda s: dnn.LayerNormTraining(x=s.put(x), scale=s.put(scale)))
    alike(
        host, cpu,
        lambda s: dnn.LayerNormBackward(
            dy=s.put(dy), x=s.put(x), mean=s.put(mean), inverse=s.put(inverse), scale=s.put(scale)
        ),
    )  # fmt: skip
    alike(host, cpu, lambda s: dnn.Softmax(x=s.put(x)))
    y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    alike(host, cpu, lambda s: dnn.SoftmaxBackward(dy=s.put(dy), y=s.put(y)))


@pytest.mark.slow
def test_chunks_of_long_channels_are_joined(host: HostSession, cpu: LibrarySession) -> None:
    for shape, axis in (((2, 3, 9000), 1), ((2, 700, 64), -1)):
        x, dy = drawn(shape) + np.float32(3), drawn(shape, seed=1)
        kept = cpu.submit(dnn.BatchNormTraining(x=cpu.put(x), axis=axis))
        mean, inverse = cpu.get(kept.mean), cpu.get(kept.inverse)
        scale = drawn((shape[axis],), seed=2)
        alike(host, cpu, lambda s, x=x, axis=axis: dnn.BatchNormTraining(x=s.put(x), axis=axis))
        alike(host, cpu, lambda s, x=x, axis=axis: dnn.InstanceNormTraining(x=s.put(x), axis=axis))
        alike(
            host, cpu,
            lambda s, x=x, dy=dy, mean=mean, inverse=inverse, scale=scale, axis=axis: dnn.BatchNormBackward(
                dy=s.put(dy), x=s.put(x), mean=s.put(mean), inverse=s.put(inverse), scale=s.put(scale), axis=axis
            ),
            1e-4,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("count, rows, width", [(20, 5, 16), (3000, 7, 3), (5000, 900, 8)])
def test_rows_that_are_looked_up_often(
    host: HostSession, cpu: LibrarySession, count: int, rows: int, width: int
) -> None:
    """More indices than a block sorts, and more equal ones than one row of threads adds up."""
    indices = np.random.default_rng(0).integers(0, rows, count)
    indices[: count // 2] = 2
    dy = drawn((count, width))
    for settings in ({}, {"padding": 1, "by_frequency": True}):
        alike(
            host, cpu,
            lambda s, settings=settings: dnn.EmbeddingBackward(
                dy=s.put(dy), indices=s.put(indices), rows=rows, **settings
            ),
            1e-4,
        )  # fmt: skip
