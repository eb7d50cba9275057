"""Recurrent networks, step by step: one product for the inputs of all steps, one for the state of each."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.tools import Tools, Value, operator

__all__: list[str] = []

ACTIVATIONS = {
    "sigmoid": "1.0 / (1.0 + exp(-x))",
    "tanh": "tanh(x)",
    "relu": "maximum(x, 0.0)",
    "affine": "alpha * x + beta",
    "softsign": "x / (1.0 + abs(x))",
    "softplus": "maximum(x, 0.0) + log1p(exp(-abs(x)))",
    "leakyrelu": "where(x < 0.0, alpha * x, x)",
    "elu": "where(x < 0.0, alpha * expm1(minimum(x, 0.0)), x)",
    "hardsigmoid": "minimum(maximum(alpha * x + beta, 0.0), 1.0)",
    "scaledtanh": "alpha * tanh(beta * x)",
    "thresholdedrelu": "where(x > alpha, x, 0.0 * x)",
}
"""Activations of cells as expressions of ``dev.elementwise``."""
DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "elu": (1.0, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, 0.0),
}
ATTRIBUTES = {
    "activation_alpha": None,
    "activation_beta": None,
    "activations": None,
    "clip": None,
    "direction": b"forward",
    "hidden_size": 0,
    "layout": 0,
}
"""Attributes that all recurrent networks have, with their defaults."""
Function = Callable[[Any], Any]
Cell = Callable[[Tools, Any, Any, tuple[Any, ...], "tuple[Any, ...]", list[Function]], "tuple[Any, ...]"]


def _functions(
    t: Tools, names: list[bytes] | None, usual: list[str], ways: int, alpha: list[float], beta: list[float]
) -> list[list[Function]]:
    """The activations of each direction."""
    given = [name.decode().lower() for name in names] if names else usual * ways
    alphas, betas = iter(alpha), iter(beta)
    found: list[Function] = []
    for name in given:
        if name not in ACTIVATIONS:
            raise t.refusal(f"the activation {name} is not mapped")
        text = ACTIVATIONS[name]
        more: dict[str, float] = {}
        first, second = DEFAULTS.get(name, (0.0, 0.0))
        if "alpha" in text:
            more["alpha"] = next(alphas, first)
        if "beta" in text:
            more["beta"] = next(betas, second)
        found.append(_function(t, text, more))
    count = len(usual)
    return [found[way * count : (way + 1) * count] for way in range(ways)]


def _function(t: Tools, text: str, numbers: dict[str, float]) -> Function:
    return lambda x: t.map(text, x=x, **numbers)


def _network(
    t: Tools, x: Value, w: Value, r: Value, b: Value, lengths: Value, states: list[Value], cell: Cell, **options: Any
) -> tuple[Any, ...]:
    """Outputs of all steps, and the last states."""
    direction, layout = options["direction"], options["layout"]
    if direction not in (b"forward", b"reverse", b"bidirectional"):
        raise t.refusal(f"the direction {direction.decode()} is not mapped")
    if options["clip"] is not None:
        raise t.refusal("clipped cells are not mapped")
    x, w, r = t.ref(x), t.ref(w), t.ref(r)
    xp = t.xp(x)
    t.expect(x, "X", None, None, None)
    x = xp.permute_dims(x, (1, 0, 2)) if layout else x
    steps, batch, width = x.shape
    t.expect(r, "R", None, None, None)
    ways, size, gates = 1 + (direction == b"bidirectional"), options["hidden_size"] or r.shape[2], options["gates"]
    t.expect(w, "W", ways, gates * size, width)
    t.expect(r, "R", ways, gates * size, size)
    if b is not None:
        t.expect(b, "B", ways, 2 * gates * size)
    usual = options["usual"]
    alphas, betas = options["activation_alpha"] or [], options["activation_beta"] or []
    functions = _functions(t, options["activations"], usual, ways, alphas, betas)
    seen = _seen(t, lengths, steps, batch, direction != b"forward")
    zeros = xp.zeros((ways, batch, size), dtype=x.dtype)
    starts = [zeros if s is None else (xp.permute_dims(t.ref(s), (1, 0, 2)) if layout else t.ref(s)) for s in states]
    for start, what in zip(starts, ("initial_h", "initial_c"), strict=False):
        t.expect(start, what, ways, batch, size)
    if options["peepholes"] is not None:
        t.expect(options["peepholes"], "P", ways, 3 * size)
    outs, lasts = [], []
    for way in range(ways):
        bias = None if b is None else t.ref(b)[way]
        peeps = options["peepholes"]
        parts = (r[way], bias, None if peeps is None else t.ref(peeps)[way])
        ours = xp.matmul(x, xp.matrix_transpose(w[way]))
        now = tuple(start[way] for start in starts)
        line: list[Any] = [None] * steps
        backwards = way == 1 or direction == b"reverse"
        for at in reversed(range(steps)) if backwards else range(steps):
            new = cell(t, ours[at], size, now, parts, functions[way])
            if seen is None:
                now, line[at] = new, new[0]
            else:
                alive = t.ref(seen[at])
                now = tuple(xp.where(alive, a, o) for a, o in zip(new, now, strict=True))
                line[at] = xp.where(alive, new[0], xp.zeros_like(new[0]))
        outs.append(xp.stack(line, axis=0))
        lasts.append(now)
    y = xp.stack(outs, axis=1)
    ends = [xp.stack([last[at] for last in lasts], axis=0) for at in range(len(states))]
    if layout:
        y, ends = xp.permute_dims(y, (2, 0, 1, 3)), [xp.permute_dims(end, (1, 0, 2)) for end in ends]
    return (y, *ends)[: t.outputs]


def _seen(t: Tools, lengths: Value, steps: int, batch: int, backwards: bool) -> "np.ndarray[Any, Any] | None":
    """Which steps are inside of each sequence [steps, batch, 1]; None: all."""
    if lengths is None:
        return None
    counts = t.counts(lengths, "sequence_lens", steps, (batch,))
    if (counts >= steps).all():
        return None
    # A network that reads backwards keeps its first state until the sequence's last step.
    return np.asarray(np.arange(steps)[:, None, None] < counts.reshape(1, batch, 1))


def _lines(x: Any, size: int) -> list[Any]:
    return [x[..., at : at + size] for at in range(0, x.shape[-1], size)]


def _lstm(t: Tools, x: Any, size: int, state: tuple[Any, ...], parts: tuple[Any, ...], f: list[Function]) -> Any:
    h, c = state
    weights, bias, peeps = parts
    xp = t.xp(x)
    gates = xp.add(x, xp.matmul(h, xp.matrix_transpose(weights)))
    if bias is not None:
        gates = xp.add(gates, xp.add(bias[: 4 * size], bias[4 * size :]))
    i, o, g, k = _lines(gates, size)
    pi, po, pf = (None,) * 3 if peeps is None else _lines(peeps, size)
    if pi is not None:
        i, g = xp.add(i, xp.multiply(pi, c)), xp.add(g, xp.multiply(pf, c))
    new = xp.add(xp.multiply(f[0](g), c), xp.multiply(f[0](i), f[1](k)))
    o = o if po is None else xp.add(o, xp.multiply(po, new))
    return xp.multiply(f[0](o), f[2](new)), new


def _gru(linear_before_reset: int) -> Cell:
    def cell(t: Tools, x: Any, size: int, state: tuple[Any, ...], parts: tuple[Any, ...], f: list[Function]) -> Any:
        (h,), (weights, bias, _) = state, parts
        xp = t.xp(x)
        wide = xp.matrix_transpose(weights)
        ours = _lines(x, size)
        if bias is not None:
            ours = [xp.add(a, o) for a, o in zip(ours, _lines(bias[: 3 * size], size), strict=True)]
        theirs = [None] * 3 if bias is None else _lines(bias[3 * size :], size)

        def product(left: Any, at: int) -> Any:
            found = xp.matmul(left, wide[:, at * size : (at + 1) * size])
            return found if theirs[at] is None else xp.add(found, theirs[at])

        z, reset = (f[0](xp.add(ours[at], product(h, at))) for at in (0, 1))
        if linear_before_reset:
            new = f[1](xp.add(ours[2], xp.multiply(reset, product(h, 2))))
        else:
            new = f[1](xp.add(ours[2], product(xp.multiply(reset, h), 2)))
        return (xp.add(xp.multiply(xp.subtract(1.0, z), new), xp.multiply(z, h)),)

    return cell


def _rnn(t: Tools, x: Any, size: int, state: tuple[Any, ...], parts: tuple[Any, ...], f: list[Function]) -> Any:
    (h,), (weights, bias, _) = state, parts
    xp = t.xp(x)
    found = xp.add(x, xp.matmul(h, xp.matrix_transpose(weights)))
    if bias is not None:
        found = xp.add(found, xp.add(bias[:size], bias[size:]))
    return (f[0](found),)


def _register(op: str, gates: int, usual: list[str], states: list[str], cell: Callable[[Any], Cell], more: str) -> None:
    """Register a recurrent network.

    Args:
        op: The operator.
        gates: Lines of its weights, in sizes of the state.
        usual: Activations of a direction by default.
        states: Names of the inputs after the lengths.
        cell: Makes the cell, of the value of the further attribute.
        more: Name of the further attribute, an integer; empty: there is none.
    """
    names = ["x", "w", "r", "b", "lengths", *states]
    defaults = ATTRIBUTES | ({more: 0} if more else {})

    def run(t: Tools, *inputs: Value, **attributes: Any) -> Any:
        every: list[Value] = [*inputs, *[None] * (len(names) - len(inputs))]
        (x, w, r, b, lengths), rest = every[:5], every[5:]
        options = defaults | attributes
        peepholes = rest.pop() if "peepholes" in states else None
        if options.get("input_forget"):
            raise t.refusal("coupled gates (input_forget) are not mapped")
        made = cell(options.get(more))
        return _network(t, x, w, r, b, lengths, rest, made, usual=usual, gates=gates, peepholes=peepholes, **options)

    parameter = inspect.Parameter
    inputs = [parameter("t", parameter.POSITIONAL_OR_KEYWORD)]
    for at, name in enumerate(names):
        default = parameter.empty if at < 3 else None
        inputs.append(parameter(name, parameter.POSITIONAL_OR_KEYWORD, default=default))
    attributes = [parameter(name, parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    run.__signature__ = inspect.Signature([*inputs, *attributes])  # type: ignore[attr-defined]
    operator(op)(run)


_register("LSTM", 4, ["sigmoid", "tanh", "tanh"], ["h", "c", "peepholes"], lambda _: _lstm, "input_forget")
_register("GRU", 3, ["sigmoid", "tanh"], ["h"], _gru, "linear_before_reset")
_register("RNN", 1, ["tanh"], ["h"], lambda _: _rnn, "")
