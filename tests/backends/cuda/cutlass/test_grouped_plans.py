"""Plans of groups around a template, which g++ compiles from plain loops: what they pass to it, and its scratch."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_compiler import COMPILER

import callboard as cb
from callboard.backends.cuda.cutlass import grouping, nvcc
from callboard.backends.cuda.cutlass.grouped_text import FIELDS
from callboard.backends.cuda.cutlass.tilings import Tiling, tilings_of_groups
from callboard.core.layout import layout_of
from callboard.kernel.cutlass import GroupedGemm
from callboard.testing.session import SessionArray

Tree = cb.EpilogueVisitorTree
TEMPLATE = """
#include <cstring>
#include <vector>
{fields}
extern "C" long long callboard_workspace(const GroupedCall* call) {{ return call->groups * 1000; }}
extern "C" int callboard_launch(const GroupedCall* p, void* scratch, void* stream) {{
    const size_t mine = p->groups * 1000;
    std::vector<char> pattern(mine, 0x5a);
    memcpy(scratch, pattern.data(), mine);  // unchanged at the end, if nothing else uses it
    for (long long row = 0; row < p->rows; ++row) {{
        int group = -1;
        for (int g = 0; g < p->groups; ++g) {{
            if (row >= p->offsets[g] && row < p->offsets[g + 1]) group = g;
        }}
        if (p->group) p->group[row] = group;
        for (long long i = 0; i < p->n; ++i) {{
            float sum = 0;
            for (long long k = 0; group >= 0 && k < p->k; ++k) {{
                const _Float16 x = ((const _Float16*)p->a)[row * p->a_step + k];
                sum += (float)x * (float)((const _Float16*)p->b)[group * p->b_group + {at}];
            }}
            (({out}*)p->out)[row * p->out_step + i] = ({out})(p->alpha * sum);
        }}
    }}
    return memcmp(scratch, pattern.data(), mine) ? 77 : 0;
}}
"""


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts of the templates that plans were made of."""
    found: list[str] = []

    def text_of(op: GroupedGemm, tiling: Tiling) -> str:
        row_major = op.b.strides[-1] == 1
        return TEMPLATE.format(
            fields=FIELDS,
            out={"f16": "_Float16", "f32": "float"}[op.result_dtype.name],
            at="k * p->b_step + i" if row_major else "i * p->b_step + k",
        )

    def built(text: str, architecture: str) -> bytes:
        found.append(text)
        source, target = tmp_path / f"{len(found)}.cpp", tmp_path / f"{len(found)}.so"
        source.write_text(text)
        command = [str(COMPILER), "-O1", "-shared", "-fPIC", str(source), "-o", str(target)]
        subprocess.run(command, check=True, timeout=60)
        return target.read_bytes()

    monkeypatch.setattr(grouping, "grouped_text", text_of)
    monkeypatch.setattr(grouping, "tilings_of_groups", lambda *extents: tilings_of_groups(*extents)[:1])
    monkeypatch.setattr(nvcc, "is_built", lambda *_: True)
    monkeypatch.setattr(nvcc, "built", built)
    return found


def drawn(*shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float16)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tree", [None, Tree().bias().relu()])
@pytest.mark.few(4)
def test_groups(session: HostSession, launches: list[str], tree: Any, turned: bool) -> None:
    """Whole, and with the epilogue's kernels behind it; a matrix for each group, by rows and by columns."""
    sizes = [5, 0, 17, 1]
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    group = np.repeat(np.arange(len(sizes)), sizes)
    a, b, bias = drawn(23, 32, seed=1), drawn(4, 32, 24, seed=2), drawn(4, 24, seed=3)
    x, y = session.put(a), session.put(b)
    if turned:
        columns = session.put(np.ascontiguousarray(b.swapaxes(1, 2)))
        y = SessionArray(columns.block, layout_of(y.layout.dtype, y.shape, (32 * 24, 1, 32)), columns.offset)
    nodes, inputs = ((), ()) if tree is None else (tree.nodes, (session.put(bias),))
    message: dict[str, Any] = {"b": y, "offsets": session.put(offsets), "epilogue": nodes, "inputs": inputs}
    found = session.get(session.submit(GroupedGemm(a=x, **message, alpha=0.5, engine="cutlass")))
    product = np.einsum("mk,mkn->mn", a.astype("f4"), b.astype("f4")[group]) / 2
    want = product if tree is None else np.maximum(product + bias.astype("f4")[group], 0)
    np.testing.assert_allclose(found.astype("f4"), want, rtol=2e-3, atol=2e-3)
    assert len(launches) == 1


def test_sums_for_an_epilogue_of_arrays_take_the_template_only_if_it_is_named(
    session: HostSession, launches: list[str]
) -> None:
    a, b = drawn(9, 32, seed=1), drawn(1, 32, 24, seed=2)
    bias, offsets = session.put(drawn(24, seed=3)), session.put(np.array([0, 9], np.int32))
    message = {"a": session.put(a), "b": session.put(b), "offsets": offsets}
    session.submit(GroupedGemm(**message, epilogue=Tree().bias().nodes, inputs=(bias,)))
    assert launches == []
    session.submit(GroupedGemm(**message))
    assert len(launches) == 1


def test_operands_between_words_take_the_plain_kernel(session: HostSession, launches: list[str]) -> None:
    a, b = drawn(9, 32, seed=1), drawn(1, 32, 24, seed=2)
    flat = session.put(np.concatenate([[0], a.ravel()]).astype(np.float16))
    shifted = flat[1:].reshape(9, 32)
    offsets = session.put(np.array([0, 9], np.int32))
    found = session.get(session.submit(GroupedGemm(a=shifted, b=session.put(b), offsets=offsets)))
    np.testing.assert_allclose(found.astype("f4"), a.astype("f4") @ b[0].astype("f4"), rtol=2e-3, atol=2e-3)
