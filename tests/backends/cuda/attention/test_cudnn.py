"""Attention by cuDNN, on a stand-in that executes its graphs: operand order, and rejected calls."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

import test_attention
import test_attention_fp8
import test_attention_paged
from attention_lab import call
from host_backend import HostSession
from host_compiler import CompiledKernels, CompilingDriver, HostCompiler
from host_sdpa import HostCudnn

from callboard.backends.cuda.attention import library
from callboard.backends.cuda.attention.cudnn import CudnnGraphs
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.kernel.attention import BackwardFp8, Forward, ForwardFp8, PagedForward
from callboard.testing.session import LibrarySession


@pytest.fixture
def cudnn(
    compiler: HostCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[HostSession, HostCudnn]]:
    driver = CompilingDriver()
    host = HostCudnn(driver)
    cache = KernelCache(tmp_path)
    monkeypatch.setattr(library, "CudnnGraphs", lambda workspace, gpu: CudnnGraphs(workspace, gpu, host, cache))
    with HostSession(driver) as session:
        session.device.kernels = CompiledKernels(driver, compiler, "attention")  # type: ignore[attr-defined]
        yield session, host
    assert not host._handles


CALLS = [
    ("bf16", "full", "none", (4, 2), (9, 20)),
    ("f16", "causal", "none", (2, 2), (20, 33)),
    ("bf16", "causal from the first key", "none", (3, 1), (20, 33)),
    ("bf16", "window", "none", (2, 1), (17, 33)),
    ("f16", "causal window", "lengths", (4, 2), (17, 33)),
    ("bf16", "scale", "lengths", (2, 2), (16, 16)),
]


@pytest.mark.parametrize("dtype, name, extra, heads, rows", CALLS)
@pytest.mark.few(3)
def test_forward_and_gradients(cudnn: Any, dtype: str, name: str, extra: str, heads: Any, rows: Any) -> None:
    session, host = cudnn
    c = call(DTYPES[dtype], name, extra, heads=heads, rows=rows, seed=2)
    for layout in ("bshd", "bhsd"):
        out, lse = session.submit(Forward(**test_attention.placed(session, c, layout)))
        test_attention.check_forward(c, session.get(out), session.get(lse), layout)
    test_attention.check_gradients(session, c, "bshd", 3, deterministic=True)
    assert host.executed == ["sdpa", "sdpa", "sdpa", "sdpa_backward"]


@pytest.mark.parametrize("extra", ["bias", "sink"])
def test_bias_and_sinks_forward(cudnn: Any, extra: str) -> None:
    session, host = cudnn
    c = call(DTYPES["f16"], "full", extra, rows=(17, 24))
    out, lse = session.submit(Forward(**test_attention.placed(session, c, "bshd")))
    test_attention.check_forward(c, session.get(out), session.get(lse), "bshd")
    assert host.executed == ["sdpa"]


@pytest.mark.slow  # of kernels that blank what no sequence has
@pytest.mark.parametrize("name", ["full", "causal", "window"])
def test_packed_sequences(cudnn: Any, name: str) -> None:
    session, host = cudnn
    test_attention.test_packed_sequences_are_those_apart(session, name, "bf16")
    assert host.executed == ["sdpa", "sdpa_backward"]


def test_sinks_of_packed_sequences(cudnn: Any) -> None:
    """The second has no keys: its queries see the sink alone."""
    session, host = cudnn
    random = np.random.default_rng(4)
    q, k, v = (random.standard_normal((n, 2, 8)).astype(DTYPES["bf16"].np) for n in (12, 20, 20))
    starts = np.array([[0, 5, 9, 12], [0, 11, 11, 20]], np.int32)
    sink = np.array([0.5, -1.0], np.float32)

    def run(s: Any) -> list[Any]:
        given = {"q": s.put(q), "k": s.put(k), "v": s.put(v), "sink": s.put(sink)}
        given |= {"cu_seqlens_q": s.put(starts[0]), "cu_seqlens_k": s.put(starts[1])}
        return [s.get(x).astype("f4") for x in s.submit(Forward(**given))]

    with LibrarySession("cpu") as cpu:
        for got, want in zip(run(session), run(cpu), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
    assert host.executed == ["sdpa"]


@pytest.mark.parametrize("option, sinks", [("full", 0), ("causal", 1), ("window", 0), ("scale", 1)])
def test_pages(cudnn: Any, option: str, sinks: int) -> None:
    """Sinks are added behind cuDNN, which takes none in decoding."""
    session, host = cudnn
    dtype = DTYPES["bf16"]
    p = test_attention_paged.pages(dtype, [9, 1, 16], 4, 2, 64, seed=1)
    q = test_attention_paged.values(dtype, (3, 4, 1, 64), 5)
    extras = {"sink": test_attention_paged.values(DTYPES["f32"], (4,), 6)} if sinks else {}
    given = test_attention_paged.operands(session, p) | {name: session.put(x) for name, x in extras.items()}
    settings = test_attention_paged.OPTIONS[option]
    op = PagedForward(q=session.put(test_attention_paged.ordered(q, "bshd")), **given, **settings)
    out, lse = (session.get(x) for x in session.submit(op))
    for i in range(3):
        test_attention_paged.check(dtype, p, i, q[i], extras, option, out[i].swapaxes(0, 1), lse[i])
    assert host.executed == ["sdpa"]


def test_fp8(cudnn: Any) -> None:
    session, host = cudnn
    for case in test_attention_fp8.CASES:
        test_attention_fp8.test_forward(session, *case)
    for dtype in ("f8_e4m3", "f8_e5m2"):
        test_attention_fp8.test_backward(session, DTYPES[dtype])
    assert host.executed == ["sdpa_fp8"] * 3 + ["sdpa_fp8", "sdpa_fp8_backward"] * 2


def eight_bits(session: HostSession, *shape: int) -> Any:
    return session.put(np.ones(shape or (1, 16, 2, 128), DTYPES["f8_e4m3"].np))


def same(x: Any) -> dict[str, Any]:
    return dict.fromkeys("qkv", x)


def test_what_fp8_has_not_says_what_to_do(cudnn: Any) -> None:
    session, _ = cudnn
    x = eight_bits(session)
    lse, narrow = session.put(np.zeros((1, 2, 16), "f4")), eight_bits(session, 1, 16, 2, 64)
    starts = session.put(np.array([0, 4, 16], "i4"))
    lengths, packed = session.put(np.array([5], "i4")), eight_bits(session, 16, 2, 128)
    narrower = eight_bits(session, 1, 16, 2, 8)
    gradients = {"dout": narrow, **same(narrow), "out": narrow, "lse": lse}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (ForwardFp8, same(narrower), "head dims that are no multiples of 16, or beyond 256: pad them"),
        (ForwardFp8, same(x) | {"softcap": 2.0}, "take attention.forward with f16 or bf16"),
        (ForwardFp8, same(packed) | {"cu_seqlens_q": starts, "cu_seqlens_k": starts}, "packed sequences: pad them"),
        (ForwardFp8, same(x) | {"seqlens_k": lengths, "causal": True}, 'alignment="top_left"'),
        (ForwardFp8, same(x) | {"window_size": (3, -1)}, "leave window_size out"),
        (BackwardFp8, gradients, "head dims other than 128: take attention.backward"),
    ]
    for message, fields, says in cases:
        assert says in (session.why_not(message(**fields)) or "")
        with pytest.raises(UnsupportedOp, match=says):
            session.submit(message(**fields))


def test_operands_that_cudnn_cannot_address_go_to_our_kernels_or_are_refused(cudnn: Any) -> None:
    session, host = cudnn
    raw = np.random.default_rng(0).standard_normal(3 * 16 * 8 + 1).astype(DTYPES["bf16"].np)
    found = []
    for first in (1, 0):
        there = session.put(raw[1 - first :])
        q, k, v = (there[first + 128 * i : first + 128 * (i + 1)].reshape(1, 16, 1, 8) for i in range(3))
        found.append(session.get(session.submit(Forward(q=q, k=k, v=v)).out).astype("f4"))
    np.testing.assert_allclose(found[0], found[1], rtol=2e-2, atol=2e-2)
    assert host.executed == ["sdpa"]  # the second, which is aligned
    op = ForwardFp8(**same(eight_bits(session, 257)[1:].reshape(1, 16, 1, 16)))
    with pytest.raises(UnsupportedOp, match="q starts 1 bytes after a multiple of 16"):
        session.submit(op)


def test_what_no_engine_takes_goes_to_our_kernels(cudnn: Any) -> None:
    session, host = cudnn
    host.refuses = "no such kernel"
    c = call(DTYPES["bf16"], "full", "none", batch=1, heads=(1, 1), rows=(5, 6), dims=(8, 8))
    out, lse = session.submit(Forward(**test_attention.placed(session, c, "bshd")))
    test_attention.check_forward(c, session.get(out), session.get(lse), "bshd")
    x = eight_bits(session)
    with pytest.raises(UnsupportedOp, match=r"attention\.forward_fp8: NOT_SUPPORTED: no such kernel"):
        session.submit(ForwardFp8(q=x, k=x, v=x))
    assert host.executed == []


def test_lengths_that_do_not_fit_fail_the_call(cudnn: Any) -> None:
    session, _ = cudnn
    x = session.put(np.ones((2, 16, 2, 8), "f2"))
    with pytest.raises(ShapeError, match="seqlens_k has a length that does not lie between 0 and 16"):
        session.submit(Forward(q=x, k=x, v=x, seqlens_k=session.put(np.array([3, 17], "i4"))))


def test_plans_are_kept_over_restarts_under_all_that_they_depend_on(cudnn: Any) -> None:
    """A library of the same device, opened later, has other plans and the same folder."""
    session, host = cudnn
    c = call(DTYPES["bf16"], "causal", "none", rows=(16, 16))
    wide = call(DTYPES["bf16"], "scale", "none", rows=(16, 16))
    for number, one in enumerate((c, wide, c, wide)):
        if number == 2:
            later = HostSession(session.driver)
            later.device.kernels = session.device.kernels
            session = later
        out, lse = session.submit(Forward(**test_attention.placed(session, one, "bshd")))
        test_attention.check_forward(one, session.get(out), session.get(lse), "bshd")
    session.close()
    assert host.planned == 2
    assert host.executed == ["sdpa"] * 4
