"""Assignment of rows to experts within their capacity, and combination of the results per token. Pure functions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from callboard.patterns.contract.checks import OneOf
from callboard.patterns.moe.arrays import Array, Indices, array_of
from callboard.patterns.moe.errors import BadExpertResult
from callboard.patterns.moe.gate import Choice, TopK, weights_of

__all__ = ["Capacity", "CapacityPolicy", "Dispatch", "combine", "dispatch", "row_result", "without"]


class CapacityPolicy(OneOf):
    """Treatment of a token whose expert has no room. Members equal their texts."""

    DROPLESS = "dropless"
    """There is always room (MegaBlocks)."""
    DROP = "drop"
    """It goes without that expert: its output is the sum over the others (GShard, Switch Transformer)."""
    REROUTE = "reroute"
    """The token goes to its next best expert that has room, with weights as if that had been chosen; it is dropped if
    no expert has room."""


@dataclass(frozen=True)
class Capacity:
    """The maximum number of rows an expert takes from one request.

    Attributes:
        policy: The treatment of rows beyond it.
        factor: Rows per expert at most, in multiples of an even load: ``ceil(factor * tokens * k / experts)``.

    Raises:
        ValueError: The factor is not positive.
    """

    policy: CapacityPolicy = CapacityPolicy.DROPLESS
    factor: float = 1.25

    def __post_init__(self) -> None:
        if not (self.factor > 0 and math.isfinite(self.factor)):
            raise ValueError(f"capacity_factor must be a positive number, but is {self.factor}")

    def rows(self, tokens: int, k: int, experts: int) -> int | None:
        """Rows per expert; None: no bound."""
        return None if self.policy is CapacityPolicy.DROPLESS else math.ceil(self.factor * tokens * k / experts)


@dataclass(frozen=True, eq=False)
class Dispatch:
    """The rows of all experts, sorted by expert, then by token.

    Attributes:
        tokens: The token of each row.
        weights: The weight of each row's result.
        offsets: The rows of expert ``e`` are ``offsets[e]:offsets[e + 1]``.
        count: Number of tokens.
        dropped: Choices that found no room.
        rerouted: Choices that went to another expert.
        experts: The experts that each token is weighted for, ``[tokens, k]``; those without room included.
    """

    tokens: Indices
    weights: Array
    offsets: Indices
    count: int
    experts: Indices
    dropped: int = 0
    rerouted: int = 0

    @property
    def load(self) -> Indices:
        """Rows of each expert."""
        return np.diff(self.offsets)

    def of(self, expert: int) -> slice:
        """The rows of an expert."""
        return slice(int(self.offsets[expert]), int(self.offsets[expert + 1]))


def dispatch(choice: Choice, rule: TopK, capacity: Capacity) -> Dispatch:
    """Sort choices by expert and fit them into its capacity.

    Room is given to the first choices of all tokens, in their order, then to the second ones, and so on, as in GShard.
    A token that is rerouted displaces no other.
    """
    tokens, experts = choice.logits.shape
    chosen, weights = choice.experts, choice.weights
    most = capacity.rows(tokens, chosen.shape[1], experts)
    dropped = rerouted = 0
    kept = None
    if most is not None:
        kept = _first(chosen, experts, most)
        over = int(kept.size - kept.sum())
        if over and capacity.policy is CapacityPolicy.REROUTE:
            chosen = _rerouted(choice, chosen, kept, experts, most)
            weights = weights_of(choice.logits, choice.scores, chosen, rule)
        dropped = int(kept.size - kept.sum())
        rerouted = over - dropped
    flat = chosen.ravel() if kept is None else chosen[kept]
    rows = np.argsort(flat, kind="stable")
    offsets = np.zeros(experts + 1, np.int64)
    np.cumsum(np.bincount(flat, minlength=experts), out=offsets[1:])
    if kept is None:
        return Dispatch(rows // chosen.shape[1], weights.ravel()[rows], offsets, tokens, chosen)
    of_token = np.broadcast_to(np.arange(tokens)[:, None], chosen.shape)[kept]
    return Dispatch(of_token[rows], weights[kept][rows], offsets, tokens, chosen, dropped, rerouted)


def _first(chosen: Indices, experts: int, most: int) -> Any:
    """Mask of the choices that are among the first ``most`` of their expert, ``[tokens, k]``."""
    by_rank = chosen.T.ravel()  # all first choices, then all second ones
    order = np.argsort(by_rank, kind="stable")
    sizes = np.bincount(by_rank, minlength=experts)
    place = np.empty(len(by_rank), np.int64)
    place[order] = np.arange(len(by_rank)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return (place < most).reshape(chosen.shape[::-1]).T.copy()


def _rerouted(choice: Choice, chosen: Indices, kept: Any, experts: int, most: int) -> Indices:
    """Choices with those that have no room replaced where another expert has it; ``kept`` is changed to match."""
    chosen = chosen.copy()
    room = most - np.bincount(chosen[kept], minlength=experts)
    ranks, tokens = np.nonzero(~kept.T)  # in the order in which room is given
    for rank, token in zip(ranks, tokens, strict=True):
        ranked = np.where(room > 0, choice.ranked[token], -np.inf)
        ranked[chosen[token]] = -np.inf
        best = int(np.argmax(ranked))
        if np.isneginf(ranked[best]):
            continue
        chosen[token, rank] = best
        kept[token, rank] = True
        room[best] -= 1
    return chosen


def without(plan: Dispatch, failed: list[int]) -> tuple[Dispatch, Indices]:
    """The dispatch with the weights of failed experts shared out among the others of each token.

    The weights of a token keep their sum, and their ratios.

    Returns:
        The new dispatch, and the tokens that have no row left, or no row with a weight.
    """
    alive = np.ones(len(plan.tokens), bool)
    for expert in failed:
        alive[plan.of(expert)] = False
    touched = np.zeros(plan.count, bool)
    touched[plan.tokens[~alive]] = True
    before = np.bincount(plan.tokens, plan.weights, plan.count)
    after = np.bincount(plan.tokens, plan.weights * alive, plan.count)
    unassigned = np.flatnonzero(touched & ~(after > 0))
    factors = np.ones(plan.count)
    np.divide(before, after, out=factors, where=touched & (after > 0))
    weights = (plan.weights * factors[plan.tokens]).astype(plan.weights.dtype)
    return replace(plan, weights=weights), unassigned


def row_result(found: Any, rows: int, name: str, expert: int | None) -> Array:
    """The result of an expert, as ``[rows, width]``.

    Raises:
        BadExpertResult: It is not that.
    """
    try:
        result = array_of(found, name)
    except TypeError as e:
        raise BadExpertResult(f"{name} must return an array: {e}", expert) from e
    if result.ndim != 2 or len(result) != rows:
        raise BadExpertResult(f"{name} was given {rows} rows and returned {list(result.shape)}", expert)
    return result


def combine(
    plan: Dispatch, results: Mapping[int, Array], shared: list[Array], width: int, dtype: np.dtype[Any]
) -> Array:
    """One row for each token: the weighted sum of its experts' rows, and the rows of the shared experts.

    Sums are taken in the order of the experts' numbers, shared ones last, so they do not depend on which expert
    finished first.

    Args:
        plan: Assignment of rows to tokens.
        results: Results of the experts that were called and have not failed, by number.
        shared: Results of the shared experts, ``[tokens, width]``.
        width: Width of a row if there is no result.
        dtype: The dtype of the sum if there is no result.

    Raises:
        BadExpertResult: The results are of different widths.
    """
    every = [*((expert, results[expert]) for expert in sorted(results)), *((None, each) for each in shared)]
    if every:
        first, width = every[0][0], every[0][1].shape[1]
        dtype = np.result_type(*(each.dtype for _, each in every))
        for expert, each in every:
            if each.shape[1] != width:
                names = [f"expert {n}" if n is not None else "a shared expert" for n in (expert, first)]
                raise BadExpertResult(f"{names[0]} returned rows of {each.shape[1]}, {names[1]} of {width}", expert)
    if dtype.kind not in "fc":
        dtype = np.result_type(dtype, plan.weights.dtype)
    out = np.zeros((plan.count, width), dtype)
    weights = plan.weights.astype(dtype, copy=False)[:, None]
    for expert, rows in every:
        if expert is None:
            out += rows
        else:
            where = plan.of(expert)
            # A token has an expert once at most, so no row of the sum is written twice.
            out[plan.tokens[where]] += rows * weights[where]
    return out
