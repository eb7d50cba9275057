"""Gradients of a routed request: of the sum to rows and weights, and of weights and losses to the gate's logits.

Pure functions, in the order of use: :func:`of_rows`, :func:`of_logits`, and ``loss_gradient``; and :func:`gradients`,
which calls the functions of the user between them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.patterns.moe.arrays import Array
from callboard.patterns.moe.balance import load_of
from callboard.patterns.moe.dispatch import Dispatch
from callboard.patterns.moe.experts import Experts
from callboard.patterns.moe.gate import Choice, Score, TopK

__all__ = ["MoeBackward", "MoeGradients", "Tape", "gradients", "loss_gradient", "of_logits", "of_rows"]


@dataclass(frozen=True)
class MoeBackward:
    """The gradient functions of a router's callables. Each accumulates the gradients of its own parameters.

    Attributes:
        gate: ``gate(tokens, grad)`` gets the tokens as the gate got them and the gradient of its logits, and returns
            that of the tokens.
        experts: ``experts[e](rows, grad)`` gets the rows of the expert and the gradient of its results, and returns
            that of the rows.
        shared: The same for the shared experts, with all tokens.
    """

    gate: Callable[[Any, Any], Any]
    experts: Sequence[Callable[[Any, Any], Any]]
    shared: Sequence[Callable[[Any, Any], Any]] = ()


@dataclass(frozen=True, eq=False)
class MoeGradients:
    """The result of a backward pass.

    Attributes:
        tokens: The gradient of the tokens, in their shape.
        logits: Gradient of the gate's logits, ``[tokens, experts]``, including that of the losses.
    """

    tokens: Array
    logits: Array


@dataclass(frozen=True, eq=False)
class Tape:
    """The values of the forward pass needed by the backward pass.

    Attributes:
        tokens: The submitted tokens, ``[tokens, width]``.
        factors: Factors that the tokens were multiplied by for the gate; None: none.
        rule: Rule by which experts were chosen.
        plan: Assignment of rows to experts.
        experts: The experts that each token was weighted for, ``[tokens, k]``, with those that had no room.
        results: Results of the called experts, by number.
    """

    tokens: Array
    factors: Array | None
    rule: TopK
    plan: Dispatch
    experts: Array
    results: Mapping[int, Array]


async def gradients(
    ways: MoeBackward, experts: Experts, tape: Tape, choice: Choice, grad: Array, load_balancing: float, z: float
) -> MoeGradients:
    """The gradients of a request; see :meth:`MoeRouter.backward <callboard.MoeRouter.backward>`."""
    flat = grad.reshape(len(tape.tokens), -1)
    numbers = [number for number, load in enumerate(tape.plan.load.tolist()) if load]
    parts = {number: of_rows(tape, flat, number) for number in numbers}
    calls = [(f"backward of expert {n}", ways.experts[n], parts[n][0], parts[n][1]) for n in numbers]
    calls += [(f"backward of shared expert {n}", way, tape.tokens, flat) for n, way in enumerate(ways.shared)]
    found = await experts.backward(calls)
    of_weights = np.zeros(choice.logits.shape, flat.dtype)
    dtype = np.result_type(flat, *found) if found else flat.dtype
    tokens = np.zeros(tape.tokens.shape, dtype)
    for number, rows in zip(numbers, found, strict=False):
        where = tape.plan.tokens[tape.plan.of(number)]
        tokens[where] += rows
        of_weights[where, number] = parts[number][2]
    for rows in found[len(numbers) :]:
        tokens += rows
    logits = of_logits(tape, choice, of_weights)
    logits += loss_gradient(choice, tape.rule, load_balancing, z)
    seen = tape.tokens if tape.factors is None else tape.tokens * tape.factors
    (of_gate,) = await experts.backward([("backward of the gate", ways.gate, seen, logits)])
    tokens += of_gate if tape.factors is None else of_gate * tape.factors
    return MoeGradients(tokens.reshape(*grad.shape[:-1], tape.tokens.shape[1]), logits)


def of_rows(tape: Tape, grad: Array, expert: int) -> tuple[Array, Array, Array]:
    """The rows of an expert, the gradient of its results, and that of their weights."""
    where = tape.plan.of(expert)
    of_tokens = grad[tape.plan.tokens[where]]
    weights = tape.plan.weights[where].astype(grad.dtype, copy=False)
    rows = np.take(tape.tokens, tape.plan.tokens[where], axis=0)
    return rows, of_tokens * weights[:, None], (of_tokens * tape.results[expert]).sum(axis=1)


def of_logits(tape: Tape, choice: Choice, of_weights: Array) -> Array:
    """The gradient of the gate's logits, from that of the weights, ``[tokens, experts]``.

    The choice itself has none: it does not change with small changes of the logits.
    """
    rule, chosen = tape.rule, tape.experts
    g = np.take_along_axis(of_weights, chosen, axis=1) * rule.scale
    if rule.score is Score.TOPK_SOFTMAX:
        w = _softmax(np.take_along_axis(choice.logits, chosen, axis=1))
        return _scattered(w * (g - (g * w).sum(axis=1, keepdims=True)), chosen, choice.logits)
    raw = np.take_along_axis(choice.scores, chosen, axis=1)
    if rule.normalize:
        summed = raw.sum(axis=1, keepdims=True)
        safe = np.where(summed > 0, summed, 1)
        g = np.where(summed > 0, (g - (g * raw).sum(axis=1, keepdims=True) / safe) / safe, g)
    return _through_scores(_scattered(g, chosen, choice.logits), choice, rule)


def loss_gradient(choice: Choice, rule: TopK, load_balancing: float, z: float) -> Array:
    """The gradient of ``load_balancing * load_balancing_loss + z * z_loss`` to the gate's logits.

    The load itself counts as constant.
    """
    tokens, experts = choice.logits.shape
    found = np.zeros_like(choice.logits)
    if load_balancing and tokens:
        share = load_of(choice) / tokens
        g = np.broadcast_to(load_balancing * experts * share / tokens, choice.scores.shape).astype(found.dtype)
        summed = choice.scores.sum(axis=1, keepdims=True)
        safe = np.where(summed > 0, summed, 1)
        g = np.where(summed > 0, (g - (g * choice.scores).sum(axis=1, keepdims=True) / safe) / safe, 0)
        found += _through_scores(g, choice, rule)
    if z and tokens:
        highest = choice.logits.max(axis=1, keepdims=True)
        summed = np.exp(choice.logits - highest).sum(axis=1, keepdims=True)
        found += z * 2 / tokens * (np.log(summed) + highest) * _softmax(choice.logits)
    return found


def _through_scores(g: Array, choice: Choice, rule: TopK) -> Array:
    s = choice.scores
    if rule.score is Score.SIGMOID:
        return np.asarray(g * s * (1 - s))
    return np.asarray(s * (g - (g * s).sum(axis=1, keepdims=True)))


def _scattered(g: Array, chosen: Array, like: Array) -> Array:
    found = np.zeros(like.shape, np.result_type(g, like))
    np.put_along_axis(found, chosen, g, axis=1)
    return found


def _softmax(x: Array) -> Array:
    found = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))
