"""Every field of every message that PyTorch's backend takes is honoured as by the CPU backend, or refused by name.

The messages are made from their declarations: an op or a field that is added later is tried without a line here. A
field whose values show no difference is in one of the tables, with the reason.
"""

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.backends.torch.fields import Answer, answer, contexts, equal, fields_of, templates, values_of

from callboard.core import registry
from callboard.core.library import AnyOp
from callboard.core.op import info_of
from callboard.core.operand import Operand
from callboard.kernel.blas import Gemm
from callboard.testing.session import LibrarySession

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

HINTS = {
    "aligned": "allows a faster transform",
    "autotune": "asks for the fastest of equal computations",
    "awaited": "says where an error of indices is reported",
    "compute": "allows fewer digits of factors",
    "determinism": "allows another order of sums",
    "deterministic": "asks for a fixed order of sums, which this backend always has",
    "method": "names one of several algorithms for the same results",
    "optimize": "says how an order of contractions is searched",
    "ordering": "says how a generator's threads are laid out; other words are another kind",
    "tf32": "allows fewer digits of factors",
}
"""Fields that leave results as they are."""
ELSEWHERE = {
    "attention": "max_seqlen_q max_seqlen_k alignment layout sink cu_seqlens_q cu_seqlens_k seqlens_q seqlens_k bias "
    "alibi_slopes window_size softcap causal softmax_scale dropout_p dropout_seed dropout_offset score_gain",
    "array": "place axis",
    "blas": "",
    "blas.gbmv": "beta conj",
    "cub": "comparison number",
    "dnn": "axis axes groups layout nodes outputs stride padding dilation shape window scale out_dtype output_padding "
    "positions by_frequency momentum running_mean running_variance parameter weight ignore_index",
    "elementwise": "bools keep",
    "fft": "kind n axes",
    "memory": "after",
    "rng": "kind",
    "solver": "check_finite columns lower low high",
    "tensor": "c",
}
"""Fields that the messages made here may not vary, by library or tag: the conformance suites do."""


def ops() -> Iterator[Any]:
    cpu = registry.backend("cpu").libraries()
    for name, cls in registry.backend("torch:cpu").libraries().items():
        for op in cls.launch_table:
            if op.__module__.startswith("callboard.kernel.") and fields_of(op) and name in cpu:
                yield pytest.param(op, id=(tag := info_of(op).tag), marks=pytest.mark.slow if "_fp8" in tag else ())


@pytest.fixture(scope="module")
def session() -> Iterator[tuple[LibrarySession, LibrarySession]]:
    """The CPU backend, and PyTorch's."""
    with LibrarySession("cpu", pure=False) as cpu, LibrarySession("torch:cpu", pure=False) as torch:
        yield cpu, torch


@pytest.mark.few(12)
@pytest.mark.filterwarnings("ignore")  # NumPy's and PyTorch's, of numbers out of range
@pytest.mark.timeout(300)
@pytest.mark.parametrize("op", list(ops()))
def test_each_field_is_honoured_or_refused_by_name(
    op: type[AnyOp], session: tuple[LibrarySession, LibrarySession]
) -> None:
    cpu, torch = session
    info = info_of(op)
    library = cpu.classes[info.library]
    vectors = any(part in info.tag for part in ("syev", "sygv", "svd"))
    seen: set[str] = set()
    for message in (one for template in templates(op, library) for one in contexts(template, library)):
        base = answer(cpu, message)
        mine = answer(torch, message)
        assert mine.refusal or equal(base, mine, vectors), message
        seen.update(name for name in fields_of(op) if isinstance(getattr(message, name), Operand))
        for name in fields_of(op):
            for changed in values_of(message, name, library):
                mine = answer(torch, changed)
                if mine.refusal:
                    assert name in mine.refusal or str(getattr(changed, name)) in mine.refusal, mine.refusal
                    seen.add(name)
                    continue
                wanted = answer(cpu, changed)
                assert equal(wanted, mine, vectors), changed
                if not equal(base, wanted, vectors):
                    seen.add(name)
    assert {*fields_of(op)} - seen - HINTS.keys() - {
        *ELSEWHERE[info.library].split(),
        *ELSEWHERE.get(info.tag, "").split(),
    } == set()


def test_the_comparison_sees_differences() -> None:
    one = np.ones((2, 2))
    assert equal(Answer((one,)), Answer((one + 1e-9,)))
    assert not equal(Answer((one,)), Answer((one * 1.1,)))
    assert not equal(Answer((one,)), Answer((one.astype("f4"),)))
    assert not equal(Answer((one,)), Answer(error="ShapeError"))
    assert equal(Answer((one,)), Answer((-one,)), sizes=True)


def test_a_field_that_is_ignored_is_found() -> None:
    """The values of a field of a message, none of which is this message's own."""
    library = registry.backend("cpu").libraries()["blas"]
    (message,) = [one for one in templates(Gemm, library) if one.a.dtype.name == "f32"][:1]
    (turned,) = values_of(message, "transpose_a", library)
    assert turned.transpose_a
    with LibrarySession("cpu", pure=False) as cpu:
        assert not equal(answer(cpu, message), answer(cpu, turned))
