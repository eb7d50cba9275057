"""``cb.sync`` type-checks as it behaves: ``get()`` of a blocking ref is the array, and the two kinds do not mix."""

from pathlib import Path

import pytest
from tests.checkers import CHECKERS, judge

GOOD = """
from typing import Any, assert_type

import numpy as np

import callboard as cb
from callboard.kernel.blas import VectorPair


class Embedder(cb.ResidentActor):
    def embed(self, texts: list[str], scale: float = 1.0) -> list[float]:
        return [scale] * len(texts)

    def echo(self, value: Any) -> Any:
        return value

    def lend(self, weights: cb.In) -> cb.GpuRef:
        raise NotImplementedError


class Count(cb.Request[Embedder, int]):
    text: str


def blocking(x: "np.ndarray[Any, Any]") -> None:
    with cb.sync.device("auto") as gpu:
        a = gpu.put(x)
        assert_type(a, cb.sync.Ref)
        c = gpu.blas.gemm(a, a)
        assert_type(c, cb.sync.Ref)
        assert_type(c.get(), np.ndarray[Any, Any])
        assert_type(c[0].T.reinterpret("u8").reshape(-1).get(), np.ndarray[Any, Any])
        assert_type(c.result(), cb.sync.Ref)
        assert_type(gpu.blas.swap(a, a).x.get(), np.ndarray[Any, Any])
        assert_type(gpu.blas.dot(a, a).result(), float)
        assert_type(gpu.copy(gpu.zeros(3)).get(), np.ndarray[Any, Any])
        assert_type(gpu.blas_lt.matmul(a, a, out_dtype=np.float32).get(), np.ndarray[Any, Any])
        assert_type(gpu.zeros(3, np.dtype("f4")).reinterpret(np.uint8), cb.sync.Ref)
        assert_type(gpu.per_generation(lambda d: d.put(x))(), cb.sync.Ref)
        emb = gpu.actor_of(cb.Props(Embedder), name="emb")
        assert_type(emb, cb.sync.ResidentRef[Embedder])
        assert_type(gpu.actor_of(cb.Props(Embedder), wait=True), cb.sync.ResidentRef[Embedder])
        assert_type(emb.ready(timeout=1.0), cb.sync.ResidentRef[Embedder])
        assert_type(emb.state, cb.ResidentState)
        assert_type(emb.call(Embedder.embed, ["hello"], scale=2.0), list[float])
        assert_type(emb.with_timeout(5.0).call(Embedder.lend, a), cb.sync.Ref)
        assert_type(emb.call(Embedder.echo, 3), Any)
        assert_type(emb.ask(Count(text="a")), int)


async def waiting(gpu: cb.Device, x: "np.ndarray[Any, Any]") -> None:
    a = gpu.put(x)
    assert_type(a, cb.GpuRef)
    assert_type(await a, cb.GpuRef)
    assert_type(a.get(), cb.Reply[np.ndarray[Any, Any]])
    assert_type(await gpu.blas.gemm(a, a).get(), np.ndarray[Any, Any])
    assert_type(gpu.blas.swap(a, a), VectorPair)
"""

BAD = """
import callboard as cb


class Embedder(cb.ResidentActor):
    def embed(self, texts: list[str], scale: float = 1.0) -> list[float]:
        return [scale] * len(texts)


class Somebody: ...


def calls(gpu: cb.sync.Device, emb: cb.sync.ResidentRef[Embedder]) -> None:
    emb.call(Embedder.embed)  # E
    emb.call(Embedder.embed, [1])  # E
    emb.call(Embedder.embed, [], scaled=1.0)  # E
    emb.call(str.upper)  # E
    gpu.actor_of(cb.Props(Somebody))  # E
    n: int = emb.call(Embedder.embed, [])  # E


def mixed(gpu: cb.sync.Device, other: cb.Device, a: cb.sync.Ref, b: cb.GpuRef) -> None:
    gpu.blas.gemm(a, b)  # E
    other.blas.gemm(a, b)  # E
    gpu.copy(b)  # E
    gpu.blas_lt.matmul(a, a, out_dtype=32)  # E
    gpu.zeros(3, 32)  # E
    a.get().result()  # E
    b.get().sum()  # E
"""


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", CHECKERS)
def test_good_passes_and_bad_does_not(tmp_path: Path, checker: str) -> None:
    judge(checker, tmp_path, GOOD, BAD)
