"""From the logits of a gate to the experts of each token and their weights. Pure functions of arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.patterns.contract.checks import OneOf
from callboard.patterns.moe.arrays import Array, Indices, floats_of
from callboard.patterns.moe.errors import BadGate

__all__ = ["Choice", "Score", "TopK", "choose", "jittered", "weights_of"]


class Score(OneOf):
    """The function that turns logits into scores. Members equal their texts."""

    SOFTMAX = "softmax"
    """Softmax over all experts, before the choice (Switch Transformer, GShard, Mixtral, Qwen-MoE)."""
    TOPK_SOFTMAX = "topk_softmax"
    """Softmax over the logits of the chosen experts alone, after the choice (Shazeer et al. 2017)."""
    SIGMOID = "sigmoid"
    """Each expert for itself (DeepSeek-V3)."""


@dataclass(frozen=True, eq=False)
class TopK:
    """The choice of ``k`` experts for each token, and their weights.

    The largest scores are chosen, the lower number among equal ones. With ``groups``, the experts are divided into that
    many groups of neighbours, and a token's experts are in its ``top_groups`` best ones. With ``bias``, the choice uses
    score plus bias, and the weights the score alone (Wang et al. 2024, arXiv 2408.15664; DeepSeek-V3).

    Attributes:
        k: Experts per token.
        score: See :class:`Score`.
        normalize: Scale the weights of a token to a sum of 1. The weights of ``"topk_softmax"`` always have this sum.
        scale: Factor of all weights (DeepSeek's ``routed_scaling_factor``).
        groups: Groups of experts; their number must be a multiple of it.
        top_groups: Groups that the experts of a token may be in.
        group_best: Number of a group's best scores whose sum ranks the group: 2 in DeepSeek-V3, 1 in DeepSeek-V2.
        bias: One number for each expert; None is 0.

    Raises:
        ValueError: A setting out of range.
    """

    k: int = 2
    score: Score | str = Score.SOFTMAX
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_best: int = 2
    bias: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", Score(self.score))
        for name in ("k", "groups", "top_groups", "group_best"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.top_groups > self.groups:
            raise ValueError(f"top_groups is {self.top_groups}, but there are {self.groups} groups")
        if not (self.scale > 0 and np.isfinite(self.scale)):
            raise ValueError(f"scale must be a positive number, but is {self.scale}")
        if self.bias is not None:
            bias = floats_of(self.bias, "bias")
            if bias.ndim != 1 or not np.isfinite(bias).all():
                raise ValueError(f"bias must be one finite number for each expert, but is {bias}")
            object.__setattr__(self, "bias", bias.copy())

    def check(self, experts: int) -> None:
        """Raises ValueError unless it can choose among ``experts`` experts."""
        if experts % self.groups:
            raise ValueError(f"{experts} experts cannot be divided into {self.groups} groups")
        allowed = experts // self.groups * self.top_groups
        if self.k > allowed:
            raise ValueError(f"k is {self.k}, but a token has only {allowed} experts to choose from")
        if self.bias is not None and len(self.bias) != experts:
            raise ValueError(f"bias has {len(self.bias)} numbers for {experts} experts")


@dataclass(frozen=True, eq=False)
class Choice:
    """The experts of each token.

    Attributes:
        logits: Logits of the gate, ``[tokens, experts]``.
        scores: Probabilities or sigmoids of all experts, ``[tokens, experts]``.
        ranked: Scores that the choice is ranked by, ``[tokens, experts]``; -inf for experts that the token may not
            have.
        experts: Chosen ones, the best first, ``[tokens, k]``.
        weights: Their weights, ``[tokens, k]``.
    """

    logits: Array
    scores: Array
    ranked: Array
    experts: Indices
    weights: Array


def choose(logits: Any, rule: TopK) -> Choice:
    """Choose experts and weigh them.

    Args:
        logits: ``[tokens, experts]``. -inf excludes an expert: its weight is 0, and it is chosen only if fewer than
            ``k`` are left.
        rule: Rule of the choice.

    Raises:
        BadGate: A logit is NaN or +inf, all of a token are -inf, or they are not a matrix.
        ValueError: The rule does not fit the number of experts.
    """
    logits = floats_of(logits, "the gate's logits")
    if logits.ndim != 2:
        raise BadGate(f"the gate's logits must be [tokens, experts], but are {list(logits.shape)}")
    rule.check(logits.shape[1])
    _check(logits)
    scores = _sigmoid(logits) if rule.score is Score.SIGMOID else _softmax(logits)
    ranked = logits if rule.score is Score.TOPK_SOFTMAX else scores
    if rule.bias is not None:
        ranked = ranked + rule.bias
    excluded = np.isneginf(logits)
    if excluded.any():
        ranked = np.where(excluded, -np.inf, ranked)
    if rule.groups > 1:
        ranked = _within_groups(ranked, rule)
    experts = np.argsort(-ranked, axis=1, kind="stable")[:, : rule.k]
    return Choice(logits, scores, ranked, experts, weights_of(logits, scores, experts, rule))


def weights_of(logits: Array, scores: Array, experts: Indices, rule: TopK) -> Array:
    """The weights of experts that were chosen, ``[tokens, k]``."""
    if rule.score is Score.TOPK_SOFTMAX:
        weights = _softmax(np.take_along_axis(logits, experts, axis=1))
    else:
        weights = np.take_along_axis(scores, experts, axis=1)
        if rule.normalize:
            summed = weights.sum(axis=1, keepdims=True)
            # A sigmoid of a very negative logit is 0: all weights of a token may be.
            weights = weights / np.where(summed > 0, summed, 1)
    return weights if rule.scale == 1.0 else weights * weights.dtype.type(rule.scale)


def jittered(tokens: Array, amount: float, seed: int, number: int) -> Array:
    """Tokens for the gate alone, each element multiplied by a random number in ``[1 - amount, 1 + amount)``.

    The jitter of the Switch Transformer (Fedus et al. 2021, arXiv 2101.03961, 2.2), which makes a gate explore in
    training. It depends on ``seed`` and on ``number``, which is that of the request, and on nothing else.
    """
    random = np.random.default_rng([seed, number]).random(tokens.shape, np.float32)
    return np.asarray(tokens * (1 - amount + 2 * amount * random), tokens.dtype)


def _check(logits: Array) -> None:
    if np.isfinite(logits).all():
        return
    bad = ~np.isfinite(logits.max(axis=1))  # NaN where there is one
    if not bad.any():
        return
    token = int(np.argmax(bad))
    wrong = np.isnan(logits[token]) | np.isposinf(logits[token])
    if not wrong.any():
        raise BadGate(f"the gate's logits of token {token} are -inf for every expert", token)
    expert = int(np.argmax(wrong))
    raise BadGate(f"the gate's logit of token {token} for expert {expert} is {logits[token, expert]}", token, expert)


def _within_groups(ranked: Array, rule: TopK) -> Array:
    """-inf outside the best groups of each token. The lower number wins among groups of equal scores."""
    tokens, experts = ranked.shape
    grouped = ranked.reshape(tokens, rule.groups, experts // rule.groups)
    best = min(rule.group_best, grouped.shape[2])
    of_group = np.sort(grouped, axis=2)[:, :, -best:].sum(axis=2)
    chosen = np.argsort(-of_group, axis=1, kind="stable")[:, : rule.top_groups]
    allowed = np.zeros((tokens, rule.groups, 1), bool)
    np.put_along_axis(allowed[:, :, 0], chosen, True, axis=1)
    return np.where(allowed, grouped, -np.inf).reshape(tokens, experts)


def _softmax(x: Array) -> Array:
    found = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # does not overflow
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))
