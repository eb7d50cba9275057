"""Shared by the BLAS-LT suites: references in f64, written without looking at any implementation, and drawn cases."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from blas_lab import Array, Factor, Placed, execute, factors, matrix_layouts, place_matrix, poisoned, values
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad
from callboard.testing.tolerances import ACTIVATION, ROUNDOFF, assert_close

FORWARD = ("none", "relu", "bias", "relu_bias", "gelu", "gelu_bias")
AUX = ("relu_aux", "relu_aux_bias", "gelu_aux", "gelu_aux_bias")
BACKWARD = ("drelu", "dgelu")
BGRAD = ("drelu_bgrad", "dgelu_bgrad", "bgrad_a", "bgrad_b")
EPILOGUES = (*FORWARD, *AUX, *BACKWARD, *BGRAD)

FLOATS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32",), "f64": ("f64",)}
"""Dtypes of factors, and what they may be stored as."""


def message(epilogue: str) -> Any:
    return MatmulAux if epilogue in AUX else MatmulBgrad if epilogue in BGRAD else Matmul


# -- references --------------------------------------------------------------------------------------------------------


def gelu(x: Any) -> Any:
    """The tanh form of arXiv:1606.08415, of real or complex numbers."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: Any) -> Any:
    """By a complex step, so that no formula of the derivative is copied (Squire and Trapp, SIAM Review 40, 1998)."""
    return np.imag(gelu(np.asarray(x, np.float64) + 1e-30j)) / 1e-30


def unpacked(mask: Array, columns: int) -> Array:
    """A ReLU mask, bit by bit as ``MatmulAux`` describes it."""
    out = np.zeros((*mask.shape[:-1], columns), bool)
    for j in range(columns):
        out[..., j] = mask[..., j // 8] >> (j % 8) & 1
    return out


class Expected(NamedTuple):
    """A product in f64.

    Attributes:
        product: Without addend and bias.
        pre: Before the activation.
        scale: Magnitude of its partial sums.
        out: After the epilogue.
        grad: Gradient of the bias, where the epilogue sums one, and the magnitude of its terms.
    """

    product: Array
    pre: Array
    scale: Array
    out: Array
    grad: tuple[Array, Array] | None


def expected(
    epilogue: str,
    a: Array,
    b: Array,
    *,
    c: Any = None,
    alpha: float = 1,
    beta: float = 0,
    bias: Any = None,
    aux: Any = None,
) -> Expected:
    """``a`` and ``b`` wide, turned and scaled; ``aux`` as the op reads it, wide (GELU) or unpacked (ReLU)."""
    product = pre = alpha * (a @ b)
    scale = abs(alpha) * (abs(a) @ abs(b))
    if c is not None and beta != 0:
        pre, scale = pre + beta * c, scale + abs(beta) * abs(c)
    if bias is not None:
        row = bias[..., None, :]
        pre, scale = pre + row, scale + abs(row)
    out, grad = pre, None
    if epilogue.startswith("relu"):
        out = np.where(pre > 0, pre, 0)
    elif epilogue.startswith("gelu"):
        out = gelu(pre)
    elif epilogue.startswith("drelu"):
        out = np.where(aux, pre, 0)
    elif epilogue.startswith("dgelu"):
        out, scale = pre * gelu_slope(aux), scale * 1.2
    if epilogue in ("drelu_bgrad", "dgelu_bgrad"):
        grad = out.sum(-2), (abs(out) + scale).sum(-2)
    elif epilogue == "bgrad_a":
        grad = np.broadcast_to(a, (*pre.shape[:-2], *a.shape[-2:])).sum(-1), abs(a).sum(-1)
    elif epilogue == "bgrad_b":
        grad = np.broadcast_to(b, (*pre.shape[:-2], *b.shape[-2:])).sum(-2), abs(b).sum(-2)
    return Expected(product, pre, scale, out, grad)


def check(
    epilogue: str,
    got: Mapping[str, Array],
    want: Expected,
    dtype: DType,
    stored: DType,
    k: int,
    *,
    kept: DType | None = None,
    vector: DType | None = None,
) -> None:
    """Compare everything that an op answered (host arrays) with the reference.

    An activation adds no more than its slope (at most 1.13 for GELU) times the error of its argument, and an error of
    its own. Libraries may round the product to the dtype of the result before they add a bias or apply a derivative.
    """
    terms, unit = k + 4, ROUNDOFF[stored.name].unit
    rounded = 0 if epilogue == "none" else abs(want.product) + abs(want.pre)
    own = ACTIVATION * abs(want.pre) if "gelu" in epilogue and stored.name != "f64" else 0
    between = rounded + own / unit
    assert_close(got["out"], want.out, stored, terms, scale=want.scale + abs(want.out), factors=dtype, between=between)
    if "aux" in got and epilogue.startswith("gelu"):
        assert_close(got["aux"], want.pre, kept or stored, terms, scale=want.scale, factors=dtype, between=rounded)
    elif "aux" in got:
        clear = abs(want.pre) > 8 * unit * (rounded + want.scale)  # rounding may turn the sign of what is near 0
        mask = unpacked(got["aux"], want.pre.shape[-1])
        np.testing.assert_array_equal(mask[clear], (want.pre >= 0)[clear])
    if want.grad is not None:
        sums, magnitude = want.grad
        # The elements of out may be rounded before they are added up; such errors grow as noise does.
        noise = np.sqrt(np.sum((between * np.ones(want.pre.shape)) ** 2, axis=-2)) if epilogue.startswith("d") else 0
        terms += want.pre.shape[-2]
        assert_close(got["bias_grad"], sums, vector or stored, terms, scale=magnitude, factors=dtype, between=noise)


# -- cases -------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """An op on the device, with what it must answer."""

    op: Any
    want: Expected
    inputs: dict[str, tuple[Placed, Array]]
    out: Placed | None
    k: int


def turned(array: Array, transpose: bool) -> Array:
    return array.swapaxes(-1, -2) if transpose else array


def wide(array: Array) -> Array:
    return array.astype(np.float64)


def aux_for(epilogue: str, shape: tuple[int, ...], dtype: DType, seed: int) -> tuple[Array, Array]:
    """What a forward pass might have kept, as stored and as the reference reads it."""
    if "relu" in epilogue:
        rows = (*shape[:-1], -(-shape[-1] // 128) * 16)
        mask = np.random.default_rng(seed).integers(0, 256, rows).astype(np.uint8)
        return mask, unpacked(mask, shape[-1])
    aux = (2 * values(DTYPES["f64"], shape, seed)).astype(dtype.np)
    return aux, wide(aux)


def draw_case(
    session: Any, data: st.DataObject, epilogue: str, dtype: DType, stored: DType, extents: Any, *, batched: bool
) -> Case:
    """Shapes, layouts, flags and numbers, all drawn."""
    m, n, k, seed = (
        data.draw(e, name)
        for e, name in ((extents, "m"), (extents, "n"), (extents, "k"), (st.integers(0, 999), "seed"))
    )
    batch = data.draw(st.integers(1, 3), "batch") if batched else 0
    flags = {name: data.draw(st.booleans(), name) for name in ("transpose_a", "transpose_b")}
    stacks: list[tuple[int, ...]] = (
        [data.draw(st.sampled_from([(), (1,), (batch,)]), "stack") for _ in "ab"] if batched else [(), ()]
    )
    if batched:
        stacks[data.draw(st.integers(0, 1), "which")] = (batch,)
    a = values(dtype, (*stacks[0], *((k, m) if flags["transpose_a"] else (m, k))), seed)
    b = values(dtype, (*stacks[1], *((n, k) if flags["transpose_b"] else (k, n))), seed + 1)
    shape = (*((batch,) if batched else ()), m, n)
    alpha, beta = data.draw(factors()), data.draw(factors())
    inputs = {name: (place_matrix(session, x, data.draw(matrix_layouts)), x) for name, x in (("a", a), ("b", b))}
    rows = st.sampled_from(["rows", "padded rows"])
    out = place_matrix(session, poisoned(stored, shape), data.draw(rows)) if data.draw(st.booleans()) else None
    c = values(stored, shape, seed + 2) if beta.on_device or beta.value != 0 else None
    if c is not None:
        inputs["c"] = place_matrix(session, c, data.draw(rows)), c
    more: dict[str, Any] = {}
    bias = aux = None
    if "bias" in epilogue:
        bias = values(stored, (*shape[:-2], n) if batched and data.draw(st.booleans()) else (n,), seed + 3)
        more["bias"] = session.put(bias)
    if epilogue in BACKWARD or epilogue in BGRAD[:2]:
        kept, aux = aux_for(epilogue, shape, stored, seed + 4)
        inputs["aux"] = place_matrix(session, kept, "rows"), kept
    op = message(epilogue)(
        **{name: placed.ref for name, (placed, _) in inputs.items()},
        out=None if out is None else out.ref,
        alpha=scalar(session, alpha, dtype),
        beta=scalar(session, beta, dtype),
        epilogue=epilogue,
        out_dtype=stored.name,
        **flags,
        **more,
    )
    want = expected(
        epilogue,
        turned(wide(a), flags["transpose_a"]),
        turned(wide(b), flags["transpose_b"]),
        c=None if c is None else wide(c),
        alpha=alpha.value,
        beta=beta.value,
        bias=None if bias is None else wide(bias),
        aux=aux,
    )
    return Case(op, want, inputs, out, k)


def scalar(session: Any, factor: Factor, dtype: DType) -> Any:
    return factor.of(session, dtype if dtype.name == "f64" else DTYPES["f32"])


def answer(session: Any, op: Any) -> dict[str, Array]:
    """Execute and fetch everything that the op answers."""
    answered = execute(session, op)
    refs = answered if isinstance(answered, tuple) else (answered,)
    return {name: session.get(ref) for name, ref in zip(type(op).returns, refs, strict=True)}
