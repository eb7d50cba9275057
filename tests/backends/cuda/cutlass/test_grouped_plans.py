"""Plans of groups around a template, which g++ compiles from plain loops: what they pass to it, and its scratch."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession
from host_compiler import COMPILER

import callboard as cb
from callboard.backends.cuda.cutlass import grouping, nvcc
from callboard.backends.cuda.cutlass.grouped_text import ADDEND, FIELDS, grouped_text, leaves_of
from callboard.backends.cuda.cutlass.text import value_text
from callboard.backends.cuda.cutlass.tilings import Tiling, tilings_of_groups
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import GroupedGemm
from callboard.testing.session import SessionArray

Tree = cb.EpilogueVisitorTree
TEMPLATE = """
#include <cmath>
#include <cstring>
#include <vector>
typedef float A;
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
        const int g = group < 0 ? 0 : group;
        for (long long i = 0; i < p->n; ++i) {{
            float sum = 0;
            for (long long k = 0; group >= 0 && k < p->k; ++k) {{
                const _Float16 x = ((const _Float16*)p->a)[row * p->a_step + k];
                sum += (float)x * (float)((const _Float16*)p->b)[group * p->b_group + {at}];
            }}
            const A x = p->alpha * sum + p->beta * {addend};
{nodes}            (({out}*)p->out)[row * p->out_step + i] = ({out})({top});
        }}
    }}
    return memcmp(scratch, pattern.data(), mine) ? 77 : 0;
}}
"""
TYPES = {"f16": "_Float16", "f32": "float", "f64": "double"}


def text_of(op: GroupedGemm, tiling: Tiling) -> str:
    """A template that g++ takes: plain loops, which read the arrays where the call says that they are."""
    leaves = {leaf.place: leaf for leaf in leaves_of(op) or ()}
    places = {name: at for at, name in enumerate(op.names)}

    def element(place: int) -> str:
        leaf = leaves[place]
        at = {"tensor": "0", "column": "g * {} + i", "row": "row * {}", "matrix": "row * {} + i"}[leaf.kind]
        dtype = TYPES[leaf.layout.dtype.name]
        return f"(A)((const {dtype}*)p->arrays[{place}])[{at.format(f'p->array_steps[{place}]')}]"

    values = [value_text(node, lambda found: element(places[found.name])) for node in op.epilogue]
    return TEMPLATE.format(
        fields=FIELDS,
        out=TYPES[op.result_dtype.name],
        at="k * p->b_step + i" if op.b.strides[-1] == 1 else "i * p->b_step + k",
        addend="0" if op.c is None else element(ADDEND),
        nodes="".join(f"            const A v{at} = {value};\n" for at, value in enumerate(values)),
        top=f"v{len(values) - 1}" if values else "x",
    )


class Compiled:
    """Templates by g++.

    Attributes:
        texts: Those that plans were made of.
        there: Of a text: it is in the cache before it is asked for.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.there: Callable[[str], bool] = lambda text: True


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiled:
    found = Compiled()

    def built(text: str, architecture: str) -> bytes:
        found.texts.append(text)
        source, target = tmp_path / f"{len(found.texts)}.cpp", tmp_path / f"{len(found.texts)}.so"
        source.write_text(text)
        command = [str(COMPILER), "-O1", "-shared", "-fPIC", str(source), "-o", str(target)]
        subprocess.run(command, check=True, timeout=60)
        return target.read_bytes()

    def only(op: Any, problem: Any, candidates: Any) -> tuple[int, str]:
        return 0, f"; the first of {len(candidates)}"

    monkeypatch.setattr(grouping, "grouped_text", text_of)
    monkeypatch.setattr(grouping, "tilings_of_groups", lambda *extents: tilings_of_groups(*extents)[:1])
    monkeypatch.setattr(grouping, "fastest", lambda library, *given: only(*given))
    monkeypatch.setattr(nvcc, "is_built", lambda text, architecture: found.there(text))
    monkeypatch.setattr(nvcc, "built", built)
    return found


def drawn(*shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float16)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tree", [None, Tree().bias().relu()])
@pytest.mark.few(4)
def test_groups(session: HostSession, launches: Compiled, tree: Any, turned: bool) -> None:
    """Without an epilogue and with one, in one launch; a matrix for each group, by rows and by columns."""
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
    launches.there = lambda text: False
    found = session.get(session.submit(GroupedGemm(a=x, **message, alpha=0.5, engine="cutlass")))
    product = np.einsum("mk,mkn->mn", a.astype("f4"), b.astype("f4")[group]) / 2
    want = product if tree is None else np.maximum(product + bias.astype("f4")[group], 0)
    np.testing.assert_allclose(found.astype("f4"), want, rtol=2e-3, atol=2e-3)
    assert len(launches.texts) == 1


WHOLE = Tree().bias().residual().scale("s", per="row").scale("t") + Tree.matrix("late") * Tree.column("all")


def given_for(session: HostSession, rows: int, groups: int, k: int = 32, n: int = 24) -> tuple[dict[str, Any], Any]:
    """A message with arrays of all kinds, an addend among them, and its result; the last row is in no group."""
    offsets = np.linspace(0, rows - 1, groups + 1).astype(np.int32)
    group = np.append(np.repeat(np.arange(groups), np.diff(offsets)), 0)
    a, b, c = drawn(rows, k, seed=1), drawn(groups, k, n, seed=2), drawn(rows, n, seed=3)
    arrays = {
        "bias": drawn(groups, n, seed=4),
        "residual": drawn(rows, n, seed=5),
        "s": drawn(rows, seed=6).astype(np.float32),
        "t": np.float32(0.25),
        "late": drawn(rows, n, seed=7).astype(np.float64),
        "all": drawn(n, seed=8),
    }
    product = np.einsum("mk,mkn->mn", a.astype("f8"), b.astype("f8")[group])
    product[-1] = 0
    x = product / 2 + 3 * c.astype("f8") + arrays["bias"].astype("f8")[group] + arrays["residual"].astype("f8")
    x = x * arrays["s"][:, None] * arrays["t"] + arrays["late"] * arrays["all"].astype("f8")
    message = {
        "a": session.put(a),
        "b": session.put(b),
        "c": session.put(c),
        "offsets": session.put(offsets),
        "inputs": tuple(session.put(one) for one in arrays.values()),
        "epilogue": WHOLE.nodes,
        "alpha": 0.5,
        "beta": 3.0,
    }
    return message, x


def close(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found.astype("f8"), want, rtol=2e-3, atol=2e-2)


def test_arrays_of_every_kind_are_read_in_the_one_launch(session: HostSession, launches: Compiled) -> None:
    message, want = given_for(session, 13, 3)
    close(session.get(session.submit(GroupedGemm(**message))), want)
    assert len(launches.texts) == 2  # the sums' is there, too
    assert any("p->arrays[8]" in text for text in launches.texts)


def is_of_sums(text: str) -> bool:
    return "((float*)p->out)" in text and "p->arrays" not in text


def test_sums_by_a_template_serve_a_tree_that_has_none_of_its_own(session: HostSession, launches: Compiled) -> None:
    """What is compiled is used without a word from the caller."""
    launches.there = is_of_sums
    message, want = given_for(session, 11, 2)
    close(session.get(session.submit(GroupedGemm(**message))), want)
    assert [is_of_sums(text) for text in launches.texts] == [True]
    launches.texts.clear()
    launches.there = lambda text: False
    message, want = given_for(session, 12, 2)
    close(session.get(session.submit(GroupedGemm(**message))), want)  # by the plain kernel
    assert launches.texts == []


def test_reductions_follow_sums_by_a_template(session: HostSession, launches: Compiled) -> None:
    a, b = drawn(9, 32, seed=1), drawn(2, 32, 24, seed=2)
    message = {"a": session.put(a), "b": session.put(b), "offsets": session.put(np.array([0, 4, 9], np.int32))}
    sums = session.put(np.zeros(9, np.float32))
    tree = Tree().reduce("sum", "row", "sums")
    session.submit(GroupedGemm(**message, epilogue=tree.nodes, reductions=(sums,)))
    product = np.einsum("mk,mkn->mn", a.astype("f4"), b.astype("f4")[np.repeat([0, 1], [4, 5])])
    np.testing.assert_allclose(session.get(sums), product.sum(1), rtol=2e-3, atol=2e-3)
    assert [is_of_sums(text) for text in launches.texts] == [True]


@pytest.mark.parametrize("name", ["a", "c", "residual"])
def test_operands_between_words_take_the_plain_kernel(session: HostSession, launches: Compiled, name: str) -> None:
    """TMA loads start at multiples of 16 bytes; an array with a number for each column may start anywhere."""
    a, b, bias = drawn(9, 32, seed=1), drawn(1, 32, 24, seed=2), drawn(25, seed=3)
    arrays = {"a": a, "c": drawn(9, 24, seed=4), "residual": drawn(9, 24, seed=5)}
    shifted = session.put(np.concatenate([[0], arrays[name].ravel()]).astype(np.float16))[1:].reshape(
        *arrays[name].shape
    )
    put: Any = {key: session.put(one) for key, one in arrays.items()} | {name: shifted}
    message = {"b": session.put(b), "offsets": session.put(np.array([0, 9], np.int32)), "beta": 1.0}
    op = GroupedGemm(
        a=put["a"],
        c=put["c"],
        **message,
        epilogue=Tree().bias().residual().nodes,
        inputs=(session.put(bias)[1:], put["residual"]),
    )
    want = a.astype("f4") @ b[0].astype("f4") + sum(arrays[key].astype("f4") for key in ("c", "residual")) + bias[1:]
    close(session.get(session.submit(op)), want)


def test_what_a_template_cannot_read_or_store_is_left_to_the_epilogues_kernels(session: HostSession) -> None:
    a, b = session.put(drawn(8, 32, seed=1)), session.put(drawn(2, 32, 24, seed=2))
    message: Any = {"a": a, "b": b, "offsets": session.put(np.array([0, 4, 8], np.int32))}
    wide, line = session.put(drawn(8, 48, seed=3)), session.put(drawn(48, seed=4))

    def leaves(tree: Any, *inputs: Any, **more: Any) -> Any:
        op = GroupedGemm(**message, epilogue=tree.nodes, inputs=inputs, **more)
        op.infer()
        return leaves_of(op)

    matrix = Tree().residual()
    assert [leaf.ahead for leaf in leaves(matrix, wide[:, :24])] == [True]
    assert leaves(matrix, wide[:, ::2]) is None
    assert leaves(matrix, session.put(drawn(8, 25, seed=3))[:, :24]) is None
    assert leaves(Tree().bias(), line[::2]) is None
    assert leaves(Tree().bias(per="row"), line[:16:2]) is None
    assert leaves(Tree().quantize("i8")) is None  # rows of 24 bytes
    assert leaves(Tree(), out_dtype="f64") is None
    assert [leaf.kind for leaf in leaves(Tree().bias(), line[:24])] == ["column"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["bf16", "f8_e4m3"])
def test_nvcc_takes_a_template_of_groups(tmp_path: Path, dtype: str) -> None:
    """Forty seconds of an idle core each: an addend and all kinds of arrays; fp8 with an i8 result."""
    pytest.importorskip("cutlass_library", reason="the extra cutlass is not installed")
    nvcc.toolchain.cache_clear()
    try:
        nvcc.toolchain()
    except cb.BackendUnavailable as e:
        pytest.skip(str(e))

    def array(name: str, *shape: int, turned: bool = False) -> Placeholder:
        kind = DTYPES[name]
        return Placeholder(layout_of(kind, shape, (shape[1] * shape[2], 1, shape[1]) if turned else None))

    narrow = dtype == "f8_e4m3"
    op = GroupedGemm(
        a=array(dtype, 512, 64),
        b=array(dtype, 2, 64, 256, turned=narrow),
        c=array("f32", 512, 256),
        beta=1.0,
        offsets=array("i32", 3),
        epilogue=(WHOLE.quantize("i8") if narrow else WHOLE).nodes,
        inputs=(
            array("f32", 2, 256),
            array("bf16", 512, 256),
            array("f32", 512),
            array("f64"),
            array("f64", 512, 256),
            array("f16", 256),
        ),
    )
    op.infer()
    tiling = tilings_of_groups(512, 2, 256, op.a.dtype.itemsize)[1]
    code = nvcc.library_of(nvcc.built(grouped_text(op, tiling), "90a", KernelCache(tmp_path)))
    assert code.callboard_launch
    assert code.callboard_workspace
