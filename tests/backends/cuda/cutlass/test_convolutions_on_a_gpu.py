"""Convolutions by the compiled templates, on a GPU: every kind, tiling and movement of filters, against f64."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda import backend
from callboard.backends.cuda.cutlass.convolutions import plans
from callboard.backends.cuda.cutlass.convolutions.tiles import tilings_of_conv
from callboard.backends.cuda.cutlass.templated import HOPPER
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.core.errors import BackendUnavailable
from callboard.kernel.cutlass import Conv, ExplainConv
from callboard.kernel.cutlass.fused import inputs_of
from callboard.testing.session import LibrarySession, SessionArray

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(900)]  # nvcc takes a minute for each text

Tree = cb.EpilogueVisitorTree
TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-4, "i8": 1.01}
MOVES = [
    # images, h, w, channels, filters, r, s, stride, padding, dilation
    (1, 7, 9, 8, 8, 1, 1, (1, 1), (0, 0), (1, 1)),
    (3, 13, 11, 24, 40, 3, 3, (1, 1), (1, 1), (1, 1)),
    (2, 17, 15, 72, 136, 3, 2, (2, 1), (1, 0), (1, 2)),
    (5, 9, 31, 64, 264, 5, 3, (3, 2), (4, 2), (2, 1)),
    (2, 3, 3, 16, 16, 3, 3, (1, 1), (3, 5), (1, 1)),
    (1, 40, 1, 8, 512, 7, 1, (1, 8), (0, 0), (1, 1)),
    (4, 28, 28, 128, 128, 3, 3, (1, 1), (1, 1), (1, 1)),
]


@pytest.fixture
def session() -> Iterator[LibrarySession]:
    """With the user's cache: what is compiled there already is not compiled again."""
    try:
        if backend.devices()[0].compute_capability != HOPPER:
            pytest.skip("the templates are for compute capability 9.0")
        with LibrarySession("cuda") as opened:
            yield opened
    except BackendUnavailable as e:
        pytest.skip(str(e))


class Case:
    """Operands of a convolution of a kind, and its sums in f64."""

    def __init__(self, kind: str, dtype: str, move: Any) -> None:
        images, h, w, channels, filters, r, s, stride, padding, dilation = move
        if kind == "dgrad":
            stride = (1, 1)  # its template has no other
        p = (h + 2 * padding[0] - dilation[0] * (r - 1) - 1) // stride[0] + 1
        q = (w + 2 * padding[1] - dilation[1] * (s - 1) - 1) // stride[1] + 1
        x, f, y = (images, h, w, channels), (filters, r, s, channels), (images, p, q, filters)
        self.settings: dict[str, Any] = {"kind": kind, "stride": stride, "padding": padding, "dilation": dilation}
        shapes = {"fprop": (x, f), "dgrad": (y, f), "wgrad": (y, x)}[kind]
        self.a, self.b = (drawn(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes))
        self.shape = {"fprop": y, "dgrad": x, "wgrad": f}[kind]
        if kind != "fprop":
            self.settings["extent"] = self.shape[1:3]
        a, b, (top, left) = wide(self.a), wide(self.b), padding
        whole = np.zeros((images, h + 2 * top, w + 2 * left, channels))
        inside = whole[:, top : top + h, left : left + w]
        if kind != "dgrad":
            inside[...] = a if kind == "fprop" else b
        self.sums = inside if kind == "dgrad" else np.zeros(self.shape)
        for i in range(r):
            for j in range(s):
                rows = slice(i * dilation[0], i * dilation[0] + (p - 1) * stride[0] + 1, stride[0])
                columns = slice(j * dilation[1], j * dilation[1] + (q - 1) * stride[1] + 1, stride[1])
                part = whole[:, rows, columns]
                if kind == "fprop":
                    self.sums += part @ b[:, i, j].T
                elif kind == "dgrad":
                    part += a @ b[:, i, j]
                else:
                    self.sums[:, i, j] = np.tensordot(a, part, ((0, 1, 2), (0, 1, 2)))


def drawn(dtype: str, *shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) / 4).astype(TYPES[dtype])


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def near(found: Any, want: Any, dtype: str) -> None:
    scale = 1.0 if dtype == "i8" else max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(wide(found) / scale, want / scale, rtol=0, atol=TOLERANCE[dtype])


def run(session: LibrarySession, case: Case, tree: Any = None, arrays: Any = None, **more: Any) -> Any:
    nodes = () if tree is None else tree.nodes
    inputs = tuple(session.put(arrays[name]) for name in inputs_of(nodes))
    settings = {**case.settings, "engine": "cutlass", **more}
    a, b = (x if isinstance(x, SessionArray) else session.put(x) for x in (case.a, case.b))
    return session.get(session.submit(Conv(a=a, b=b, epilogue=nodes, inputs=inputs, **settings)))


def only(monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    monkeypatch.setattr(plans, "tilings_of_conv", lambda kind: (tiling,))


@pytest.mark.parametrize("tiling", tilings_of_conv("fprop"), ids=str)
def test_images_forward(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    only(monkeypatch, tiling)
    for move in MOVES:
        case = Case("fprop", "bf16", move)
        bias = drawn("bf16", case.shape[-1], seed=5)
        found = run(session, case, Tree().bias().relu(), {"bias": bias}, alpha=0.5)
        near(found, np.maximum(case.sums / 2 + wide(bias), 0), "bf16")


@pytest.mark.parametrize("tiling", tilings_of_conv("dgrad")[:2], ids=str)
def test_gradients_of_images(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    only(monkeypatch, tiling)
    for move in MOVES:
        case = Case("dgrad", "bf16", move)
        near(run(session, case), case.sums, "bf16")


@pytest.mark.parametrize("tiling", tilings_of_conv("wgrad"), ids=str)
def test_gradients_of_filters(session: LibrarySession, monkeypatch: pytest.MonkeyPatch, tiling: Tiling) -> None:
    """Added in f32 to those of other images."""
    only(monkeypatch, tiling)
    for move in MOVES:
        case = Case("wgrad", "bf16", move)
        before = drawn("f32", *case.shape, seed=5)
        found = run(session, case, c=session.put(before), beta=1.0, out_dtype="f32")
        near(found, case.sums + before, "f32")


def test_a_tree_with_every_kind_of_array(session: LibrarySession) -> None:
    tree = Tree().bias().scale("s", per="row").scale("t").silu().gate("g", None).residual().quantize("i8")
    for move in MOVES[4:]:  # with multiples of 16 filters: a row of i8 is whole words
        case = Case("fprop", "f16", move)
        shape = case.shape
        sizes: dict[str, Any] = {"bias": shape[-1:], "s": shape[:-1], "t": (), "g": shape, "residual": shape}
        arrays = {name: drawn("f16", *size, seed=at) for at, (name, size) in enumerate(sizes.items())}
        x = (case.sums + wide(arrays["bias"])) * wide(arrays["s"])[..., None] * wide(arrays["t"])
        want = x / (1 + np.exp(-x)) * wide(arrays["g"]) + wide(arrays["residual"])
        near(run(session, case, tree, arrays), np.clip(np.rint(want), -128, 127), "i8")


def test_a_number_for_each_channel_of_filters(session: LibrarySession) -> None:
    for move in MOVES[1:4]:
        case = Case("wgrad", "f16", move)
        scale, decay = drawn("f16", case.shape[-1], seed=5), drawn("f16", *case.shape, seed=6)
        found = run(session, case, Tree().scale("s", per="column").residual(), {"s": scale, "residual": decay})
        near(found, case.sums * wide(scale) + wide(decay), "f16")


def test_operands_between_words_take_the_patches(session: LibrarySession) -> None:
    case = Case("fprop", "bf16", MOVES[1])
    images = session.put(np.concatenate([case.a.ravel()[:1], case.a.ravel()]))
    given = case.a
    case.a = images[1:].reshape(*given.shape)
    near(
        run(session, case, Tree().bias().relu(), {"bias": np.zeros(40, given.dtype)}), np.maximum(case.sums, 0), "bf16"
    )


def test_the_fastest_is_measured_and_told(session: LibrarySession, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("fprop", "bf16", MOVES[-1])
    bias = drawn("bf16", 128, seed=5)
    for tiling in tilings_of_conv("fprop"):  # all are compiled
        with monkeypatch.context() as patch:
            only(patch, tiling)
            session._plans.clear()
            run(session, case, Tree().bias().relu(), {"bias": bias})
    nodes, a, b = Tree().bias().relu().nodes, session.put(case.a), session.put(case.b)
    told: Any = session.submit(ExplainConv(a=a, b=b, epilogue=nodes, inputs=(session.put(bias),), **case.settings))
    told = told.result() if hasattr(told, "result") else told
    assert f"measured as the fastest of {len(tilings_of_conv('fprop')) + 1} engines" in str(told)
