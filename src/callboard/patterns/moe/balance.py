"""Losses that keep the load of experts even, and the bias that does so without one. Pure functions."""

import numpy as np

from callboard.patterns.moe.arrays import Array
from callboard.patterns.moe.gate import Choice

__all__ = ["entropy", "load_balancing_loss", "load_of", "updated_bias", "z_loss"]


def load_of(choice: Choice) -> Array:
    """The number of tokens per expert."""
    return np.bincount(choice.experts.ravel(), minlength=choice.logits.shape[1])


def load_balancing_loss(choice: Choice) -> float:
    """``experts * sum(f * p)``: ``f`` is the share of tokens that have chosen an expert, ``p`` its mean score.

    It is ``k`` if the load is even. As in the Switch Transformer (arXiv 2101.03961, eq. 4) and, for several experts
    per token, in Mixtral's training. Scores are scaled to a sum of 1 for each token, which matters for sigmoids only
    (DeepSeek-V3, arXiv 2412.19437, eq. 17 to 20). 0 for no tokens.
    """
    tokens, experts = choice.logits.shape
    if not tokens:
        return 0.0
    summed = choice.scores.sum(axis=1, keepdims=True)
    p = (choice.scores / np.where(summed > 0, summed, 1)).mean(axis=0)
    return float(experts * (load_of(choice) / tokens) @ p)


def z_loss(choice: Choice) -> float:
    """Mean of ``logsumexp(logits) ** 2``, which keeps logits small; 0 for no tokens.

    From ST-MoE (arXiv 2202.08906, eq. 5).
    """
    if not len(choice.logits):
        return 0.0
    highest = choice.logits.max(axis=1, keepdims=True)
    summed = np.log(np.exp(choice.logits - highest).sum(axis=1)) + highest[:, 0]
    return float(np.mean(summed**2))


def updated_bias(bias: Array, load: Array, rate: float) -> Array:
    """The bias after a step: ``rate`` more if the load is below its mean, less if it is above.

    Balancing without a loss (Wang et al. 2024, arXiv 2408.15664, algorithm 1).

    Args:
        bias: One number for each expert.
        load: Tokens that have chosen each expert since the last step.
        rate: Step; DeepSeek-V3 takes 0.001.
    """
    return np.asarray(bias + rate * np.sign(load.mean() - load), bias.dtype)


def entropy(load: Array) -> float:
    """The evenness of a load: 1 if uniform, 0 if one expert has all of it, or if there is no load."""
    total = load.sum()
    if not total or len(load) < 2:
        return 0.0
    shares = load[load > 0] / total
    return float(-(shares * np.log(shares)).sum() / np.log(len(load)))
