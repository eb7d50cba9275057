"""Plans of convolutions around a template, which g++ compiles from plain loops: what they pass to it; the choice."""

import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from host_backend import HostSession
from host_compiler import COMPILER

import callboard as cb
from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.convolutions import plans
from callboard.backends.cuda.cutlass.convolutions.text import CALL, conv_text
from callboard.backends.cuda.cutlass.convolutions.tiles import tilings_of_conv
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.core.errors import UnsupportedOp
from callboard.kernel.cutlass import Conv, ConvKind, ExplainConv

Tree = cb.EpilogueVisitorTree
KINDS: tuple[ConvKind, ...] = get_args(ConvKind)
TEMPLATE = """
namespace callboard {{
{fields}
}}
{call}
extern "C" long long callboard_workspace(const ConvCall*) {{ return 0; }}
extern "C" int callboard_launch(const ConvCall* p, void*, void*) {{
    const int *i = p->images, *f = p->filters, *m = p->moves;
    const int P = (i[1] + 2 * m[2] - m[4] * (f[1] - 1) - 1) / m[0] + 1;
    const int Q = (i[2] + 2 * m[3] - m[5] * (f[2] - 1) - 1) / m[1] + 1;
    const _Float16 *a = (const _Float16*)p->a, *b = (const _Float16*)p->b;
    for (int l = 0; l < p->batch; ++l) for (int row = 0; row < p->m; ++row) for (int col = 0; col < p->n; ++col) {{
        float sum = 0;
        for (int n = 0; n < i[0]; ++n) for (int y = 0; y < P; ++y) for (int x = 0; x < Q; ++x)
            for (int r = 0; r < f[1]; ++r) for (int s = 0; s < f[2]; ++s) {{
                const int h = y * m[0] - m[2] + r * m[4], w = x * m[1] - m[3] + s * m[5];
                const int small = (n * P + y) * Q + x, pixel = (n * i[1] + h) * i[2] + w;
                if (h < 0 || h >= i[1] || w < 0 || w >= i[2]) continue;
                if ({kind} == 0 && row == small) for (int c = 0; c < i[3]; ++c)
                    sum += (float)a[pixel * i[3] + c] * (float)b[((col * f[1] + r) * f[2] + s) * i[3] + c];
                if ({kind} == 1 && row == pixel) for (int k = 0; k < f[0]; ++k)
                    sum += (float)a[small * f[0] + k] * (float)b[((k * f[1] + r) * f[2] + s) * i[3] + col];
                if ({kind} == 2 && l == r * f[2] + s)
                    sum += (float)a[small * f[0] + row] * (float)b[pixel * i[3] + col];
            }}
        const float* const c = (const float*)p->c;
        const float add = c ? p->beta * c[l * p->c_batch + row * p->c_step + col] : 0;
        const float bias = (float)((const _Float16*)p->inputs[0])[l * p->batches[0] + col];
        ((float*)p->out)[l * p->out_batch + row * p->out_step + col] = p->alpha * sum + add + bias;
    }}
    return 0;
}}
"""


MOVES = [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts of the templates that plans were made of."""
    found: list[str] = []

    def text_of(op: Conv, problem: Any, tiling: Tiling) -> str:
        fields = re.search(r"struct Call \{.*?\};", conv_text(op, problem, tiling), re.DOTALL)
        assert fields is not None
        return TEMPLATE.format(fields=fields[0], call=CALL, kind=KINDS.index(op.kind))

    def built(text: str, architecture: str) -> bytes:
        found.append(text)
        source, target = tmp_path / f"{len(found)}.cpp", tmp_path / f"{len(found)}.so"
        source.write_text(text)
        subprocess.run([str(COMPILER), "-O1", "-shared", "-fPIC", source, "-o", target], check=True, timeout=60)
        return target.read_bytes()

    monkeypatch.setattr(plans, "conv_text", text_of)
    monkeypatch.setattr(plans, "tilings_of_conv", lambda kind: tilings_of_conv(kind)[:1])
    monkeypatch.setattr(nvcc, "is_built", lambda *_: True)
    monkeypatch.setattr(nvcc, "built", built)
    return found


def drawn(*shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float16)


def operands(kind: ConvKind, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Both factors of a kind, and the settings of the message."""
    x, w = drawn(2, 6, 5, 8, seed=1), drawn(16, 3, 2, 8, seed=2)
    moves = zip((6, 5), (3, 2), stride, padding, dilation, strict=True)
    spatial = [(full + 2 * pad - far * (own - 1) - 1) // step + 1 for full, own, step, pad, far in moves]
    y = drawn(2, *spatial, 16, seed=3)
    a, b = {"fprop": (x, w), "dgrad": (y, w), "wgrad": (y, x)}[kind]
    extent = {"fprop": None, "dgrad": (6, 5), "wgrad": (3, 2)}[kind]
    return a, b, {"kind": kind, "stride": stride, "padding": padding, "dilation": dilation, "extent": extent}


def submitted(session: HostSession, op: Any, a: Any, b: Any, **settings: Any) -> Any:
    return session.submit(op(a=session.put(a), b=session.put(b), **settings))


@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(6)
def test_convolutions(session: HostSession, launches: list[str], kind: ConvKind, moves: Any) -> None:
    """Extents, movements, and the steps of an addend, a number for each column and a result with gaps."""
    if kind == "dgrad":
        moves = ((1, 1), *moves[1:])
    a, b, settings = operands(kind, *moves)
    sums = session.get(submitted(session, Conv, a, b, out_dtype="f32", engine="vendor", **settings))
    assert launches == []
    before, bias = drawn(*sums.shape, seed=4).astype(np.float32), drawn(sums.shape[-1], seed=5)
    wider = session.put(np.zeros((*sums.shape[:-1], sums.shape[-1] + 8), np.float32))
    given = {"c": session.put(before), "beta": 0.5, "alpha": 2.0, "inputs": (session.put(bias),)}
    out = wider[..., : sums.shape[-1]]
    submitted(session, Conv, a, b, epilogue=Tree().bias().nodes, out=out, engine="cutlass", **given, **settings)
    np.testing.assert_allclose(session.get(out), 2 * sums + before / 2 + bias.astype("f4"), rtol=1e-5, atol=1e-4)
    assert not session.get(wider)[..., sums.shape[-1] :].any()
    assert len(launches) == 1


def test_operands_between_words_take_the_patches(session: HostSession, launches: list[str]) -> None:
    a, b, settings = operands("fprop", *MOVES[0])
    given: dict[str, Any] = {"epilogue": Tree().bias().nodes, "inputs": (session.put(drawn(16, seed=5)),), **settings}
    want = session.get(submitted(session, Conv, a, b, engine="vendor", **given))
    flat = session.put(np.concatenate([[0], a.ravel()]).astype(np.float16))
    message = Conv(a=flat[1:].reshape(*a.shape), b=session.put(b), engine="cutlass", **given)
    np.testing.assert_array_equal(session.get(session.submit(message)), want)
    assert len(launches) == 1


class Timed:
    """Templates that do nothing, and take a time; by the words of a tiling. Patches with a product take 1.

    Attributes:
        took: Milliseconds of a launch; only these are compiled.
        compiled: Those that were not there before.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.took: dict[str, float] = {}
        self.compiled: list[str] = []

    def is_built(self, text: str, architecture: str) -> bool:
        return text in self.took

    def built(self, text: str, architecture: str) -> bytes:
        if text not in self.took:
            self.compiled.append(text)
        return text.encode()

    def library(self, image: bytes) -> Any:
        def launch(call: int, scratch: int, stream: int) -> int:
            self.driver.streams.add(stream)
            self.driver.clock += self.took.get(image.decode(), 1.0)
            return 0

        return type("Loaded", (), {"callboard_launch": launch, "callboard_workspace": lambda call: 0})


@pytest.fixture
def timed(session: HostSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Timed:
    made = Timed(session.driver)
    monkeypatch.setattr(plans, "conv_text", lambda op, problem, tiling: str(tiling))
    monkeypatch.setattr(nvcc, "is_built", made.is_built)
    monkeypatch.setattr(nvcc, "built", made.built)
    monkeypatch.setattr(nvcc, "library_of", made.library)
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path))
    return made


def told(session: HostSession, kind: ConvKind = "fprop", moves: Any = MOVES[0], **settings: Any) -> str:
    """What executes a convolution."""
    session._plans.clear()
    a, b, given = operands(kind, *moves)
    return str(submitted(session, ExplainConv, a, b, **given, **settings))


def test_what_is_compiled_competes_with_patches(session: HostSession, timed: Timed) -> None:
    first, second, third = map(str, tilings_of_conv("fprop"))
    patches = "custom kernel: patches; cublaslt: the product, then 1 launches of a generated epilogue"
    assert told(session) == patches
    timed.took = {first: 0.5, third: 0.25}
    assert told(session) == f"cutlass: one launch, fprop, {third}; measured as the fastest of 3 engines"
    timed.took = {second: 7.0}
    assert told(session) == f"{patches}; measured as the fastest of 2 engines"
    assert told(session, engine="vendor") == patches
    assert timed.compiled == []


def test_a_choice_is_for_filters_of_a_size(session: HostSession, timed: Timed) -> None:
    first = str(tilings_of_conv("fprop")[0])
    timed.took = {first: 0.5}
    assert first in told(session)
    timed.took = {first: 7.0}
    assert first in told(session)  # as it was measured
    narrow = submitted(session, ExplainConv, drawn(2, 4, 4, 8, seed=1), drawn(16, 1, 1, 8, seed=2))
    assert "patches" in str(narrow)  # the result has the same extents


def test_cutlass_compiles_one_template(session: HostSession, timed: Timed) -> None:
    for kind in KINDS:
        first = str(tilings_of_conv(kind)[0])
        assert told(session, kind, engine="cutlass") == f"cutlass: one launch, {kind}, {first}"
        assert timed.compiled.pop() == first


def test_what_has_no_template_takes_patches(session: HostSession, timed: Timed) -> None:
    timed.took = dict.fromkeys(map(str, tilings_of_conv("dgrad")), 0.5)
    assert "patches" in told(session, "dgrad", MOVES[1])
    with pytest.raises(UnsupportedOp, match=r"engine is 'cutlass': stride is \(2, 1\); the template of dgrad"):
        told(session, "dgrad", MOVES[1], engine="cutlass")
