"""Operation graphs against NumPy in f64."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from dnn_lab import Array, drawn, wide
from scipy import special

from callboard.core.errors import ShapeError
from callboard.kernel.dnn import Conv, Fused, Fusion, GraphNode
from callboard.kernel.dnn.graphs.nodes import KINDS
from callboard.testing.tolerances import assert_close

SETTINGS = {"layout": "NCHW", "tf32": False, "deterministic": False, "autotune": False}


def graph(build: Callable[[Any], None], **settings: Any) -> Fused:
    """The message of a graph."""
    made: list[Fused] = []
    with Fusion[Any](made.append, SETTINGS | settings) as f:
        build(f)
    return made[0]


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * special.erfc(-x * np.sqrt(0.5)))


UNARY: dict[str, Callable[[Array], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "swish": lambda x: x * special.expit(x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "identity": lambda x: x,
    "abs": np.abs,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "erf": special.erf,
}
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "minimum": np.minimum,
    "maximum": np.maximum,
}  # fmt: skip
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")


def terms_of(session: Any, terms: int) -> int:
    """cuDNN approximates functions such as tanh in f32 to about 1e-5: as exact as sums of 64 times as many terms."""
    return terms * (64 if session.backend.name == "cuda" else 1)


def test_every_function_of_elements(session: Any) -> None:
    """Those of one value, then those of two with a row that is broadcast."""
    assert {name for name, kind in KINDS.items() if kind.family == "unary"} == UNARY.keys()
    assert {name for name, kind in KINDS.items() if kind.family == "binary"} == BINARY.keys()
    x, row = drawn(1, (6, 32), "f32"), drawn(2, (32,), "f32")
    x, row = np.clip(x, -3, 3), np.where(abs(row) < 0.1, np.float32(1), row)
    for name, function in UNARY.items():
        given = abs(x) + np.float32(0.1) if name in POSITIVE else x
        ref = session.put(given)
        (got,) = session.submit(graph(lambda f, name=name, ref=ref: f.output(getattr(f, name)(ref))))
        want = function(wide(given))
        assert_close(session.get(got), want, "f32", terms_of(session, 8), scale=np.abs(want).max())
    ref, row_ref = session.put(x), session.put(row)
    for name, function in BINARY.items():
        build = lambda f, name=name: f.output(getattr(f, name)(ref, row_ref))
        assert_close(session.get(session.submit(graph(build))[0]), function(wide(x), wide(row)), "f32", 4)


class Case(NamedTuple):
    """A graph of arrays, and what it is in f64."""

    arrays: tuple[tuple[int, ...], ...]
    build: Callable[..., None]
    want: Callable[..., tuple[Any, ...]]
    terms: int = 4
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed


def convolved(x: Array, w: Array) -> Array:
    """NHWC, a window of 3 by 3 with a padding of 1."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.asarray(np.einsum("nhwcij,kijc->nhwk", windows, w))


def normalised(x: Array, scale: Array, bias: Array | float = 0.0, *, centred: bool = True) -> Array:
    away = x - x.mean(-1, keepdims=True) if centred else x
    return np.asarray(away / np.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * scale + bias)


NHWC = {"layout": "NHWC"}
CASES = {
    "convolution": Case(
        ((2, 8, 8, 16), (32, 3, 3, 16), (32,), (2, 8, 8, 32)),
        lambda f, x, w, b, r: f.output(f.relu(f.conv(x, w, padding=1) + b + r)),
        lambda x, w, b, r: (np.maximum(convolved(x, w) + b + r, 0),), 144, NHWC,
    ),
    "convolution of rows": Case(
        ((2, 10, 16), (32, 1, 16)),
        lambda f, x, w: f.output(f.swish(f.conv(x, w), 1.5)),
        lambda x, w: ((y := np.einsum("nlc,kc->nlk", x, w[:, 0])) * special.expit(1.5 * y),), 16, NHWC,
    ),
    "product": Case(
        ((64, 32), (32, 48), (48,)),
        lambda f, a, b, c: f.output(f.gelu(f.matmul(a, b) + c)),
        lambda a, b, c: (gelu(a @ b + c),), 32,
    ),
    "product of a function": Case(
        ((64, 32), (32, 48)),
        lambda f, a, b: f.output(f.matmul(f.relu(a), b)),
        lambda a, b: (np.maximum(a, 0) @ b,), 32,
    ),
    "products of a batch": Case(
        ((2, 3, 16, 32), (2, 3, 32, 16)),
        lambda f, a, b: f.output(f.tanh(f.matmul(a, b) * 0.125)),
        lambda a, b: (np.tanh(a @ b / 8),), 32,
    ),
    "two results": Case(
        ((64, 32), (32,)),
        lambda f, x, b: (f.output(y := f.tanh(2 * (f.identity(x) - b))), f.output(f.maximum(y, 0.25))),
        lambda x, b: (np.tanh(2 * (x - b)), np.maximum(np.tanh(2 * (x - b)), 0.25)),
    ),
    "sums of rows": Case(
        ((3, 8, 64),), lambda f, x: f.output(f.sum(f.mul(x, x), -1), "f32"),
        lambda x: ((x * x).sum(-1, keepdims=True),), 64,
    ),
    "means of columns": Case(
        ((3, 8, 64),), lambda f, x: f.output(f.mean(x, (0, 1)), "f32"), lambda x: (x.mean((0, 1), keepdims=True),), 24
    ),
    "all": Case(
        ((16, 64),), lambda f, x: f.output(f.norm1(x, (0, 1)), "f32"), lambda x: (abs(x).sum(keepdims=True),), 1024
    ),
    "largest magnitudes": Case(
        ((16, 64),), lambda f, x: f.output(f.amax(x, 1), "f32"), lambda x: (abs(x).max(1, keepdims=True),)
    ),
    "layer norm": Case(
        ((24, 64), (64,), (64,)), lambda f, x, s, b: f.output(f.layer_norm(x, s, b)),
        lambda x, s, b: (normalised(x, s, b),), 64,
    ),
    "rms norm": Case(
        ((2, 12, 64), (64,)), lambda f, x, s: f.output(f.rms_norm(x, s)),
        lambda x, s: (normalised(x, s, centred=False),), 64,
    ),
}  # fmt: skip
PRODUCTS = ("product", "product of a function", "products of a batch")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", CASES)
def test_graphs(session: Any, name: str, dtype: str) -> None:
    case = CASES[name]
    arrays = [drawn(i, shape, dtype) for i, shape in enumerate(case.arrays)]
    more = {"tf32": True} if dtype == "f32" and name in PRODUCTS else {}
    op = graph(lambda f: case.build(f, *map(session.put, arrays)), **case.settings, **more)
    for got, want in zip(session.submit(op), case.want(*map(wide, arrays)), strict=True):
        stored = "f32" if got.dtype.name == "f32" else dtype
        kind: Any = "tf32" if more else stored
        assert_close(
            session.get(got), want, kind, terms_of(session, case.terms), kind="sum", scale=np.abs(want).max() + 4
        )


def test_given_arrays_strides_and_wider_results(session: Any) -> None:
    x = drawn(1, (8, 40, 16), "f16")
    ref, out = session.put(x)[:, 8:, :], session.empty((8, 32, 16), "f32")
    (got,) = session.submit(graph(lambda f: f.output(f.exp(f.mul(ref, 0.5)), out=out)))
    assert_close(session.get(got), np.exp(wide(x[:, 8:]) / 2), "f32", 4, kind="sum", scale=4.0)
    np.testing.assert_array_equal(session.get(out), session.get(got))


def test_what_does_not_fit(session: Any) -> None:
    x, w = session.put(drawn(1, (4, 8), "f32")), session.put(drawn(2, (4, 8), "f32"))
    wrong: list[tuple[Callable[[Any], Any], str]] = [
        (lambda f: f.matmul(f.relu(x), w), r"node 1 \(matmul\): shapes \(4, 8\) and \(4, 8\); a product is of"),
        (lambda f: f.add(x, session.put(drawn(3, (3,), "f32"))), r"shapes \(4, 8\) and \(3,\) cannot be broadcast"),
        (lambda f: f.sum(x, 2), r"axes are \(2,\); the value has shape \(4, 8\)"),
        (lambda f: f.conv(x, w), "it must have a batch axis"),
        (lambda f: f.rms_norm(x, w), r"these must have that of its last axis, \(8,\)"),
        (lambda f: f.relu(x), "nothing is stored"),
        (lambda f: (f.exp(x), f.output(f.relu(x))), r"node 0 \(exp of operand 0\) leads to no output"),
        (lambda f: f.output(f.relu(x), "i32"), "outputs.0. has dtype 'i32'"),
        (lambda f: (f.output(y := f.relu(x)), f.output(y)), "each may be stored once"),
    ]
    for build, text in wrong:
        with pytest.raises(ShapeError, match=text):
            graph(build).infer()
    with pytest.raises(TypeError, match="neither a value of this graph nor an array"):
        graph(lambda f: f.relu(3.0))
    other = Fusion[Any](print, SETTINGS)
    with pytest.raises(TypeError, match="of another graph"):
        graph(lambda f: f.add(other.relu(x), x))
    bad = Fused(operands=(x,), nodes=(GraphNode("relu", (1,)),), outputs=())
    with pytest.raises(ShapeError, match=r"node 0 \(relu of node 0\): it takes 1 values from earlier nodes"):
        bad.infer()


def test_a_graph_is_one_op(session: Any) -> None:
    """The same bits as the op that does the same."""
    x, w, b = (session.put(drawn(i, s, "f32")) for i, s in enumerate(((2, 8, 8, 16), (32, 3, 3, 16), (32,))))
    op = graph(lambda f: f.output(f.relu(f.conv(x, w, padding=1) + b)), **NHWC)
    (got,) = session.submit(op)
    want = session.submit(Conv(x=x, w=w, bias=b, padding=1, activation="relu", layout="NHWC"))
    assert_close(session.get(got), wide(session.get(want)), "f32", 144, kind="sum", scale=16.0)
