"""Acceptance of proposed tokens, and the token that follows them. Pure functions over arrays; chance is an argument.

All take ``proposed`` (k token ids) and ``target``: the target's distributions at the k proposed positions and after
them, ``(k + 1, vocabulary)``. All keep a prefix of the proposal and add one token: the correction of the first
refused one, or a bonus if all were kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Outcome",
    "accept_probability",
    "coupled",
    "draw",
    "greedy",
    "likely",
    "race",
    "rejection",
    "residual",
    "typical",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The result of a verification.

    Attributes:
        accepted: Number of proposed tokens that were accepted.
        token: The token after them.
    """

    accepted: int
    token: int


def greedy(proposed: Sequence[int], scores: NDArray[Any]) -> Outcome:
    """Keep the tokens of plain greedy decoding. ``scores`` are logits or probabilities, ``(k + 1, V)``."""
    best = scores.argmax(axis=1).tolist()
    for i, token in enumerate(proposed):
        if token != best[i]:
            return Outcome(i, best[i])
    return Outcome(len(proposed), best[len(proposed)])


def rejection(proposed: Sequence[int], draft: Floats | None, target: Floats, uniforms: Sequence[float]) -> Outcome:
    """Speculative sampling: the tokens have exactly the target's distribution, whatever the draft is.

    Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1; Chen et al. 2023,
    "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2.

    Args:
        proposed: Token i was drawn from ``draft[i]``.
        draft: ``(k, V)``; None if the proposal is certain (a table, a search): all of its mass is on one token.
        target: ``(k + 1, V)``.
        uniforms: k + 1 independent numbers from [0, 1): one for each proposed token, one for the last token.
    """
    k = len(proposed)
    for i, token in enumerate(proposed):
        q = None if draft is None else draft[i]
        if not uniforms[i] < accept_probability(token, q, target[i]):
            return Outcome(i, draw(residual(token, q, target[i]), uniforms[k]))
    return Outcome(k, draw(target[k], uniforms[k]))


def accept_probability(token: int, q: Floats | None, p: Floats) -> float:
    """``min(1, p(token) / q(token))``; without ``q`` the proposal was certain, so ``q(token)`` is 1."""
    if q is None:
        return float(p[token])
    return 1.0 if p[token] >= q[token] else float(p[token] / q[token])


def residual(token: int, q: Floats | None, p: Floats) -> Floats:
    """The distribution that replaces a rejected token: ``max(0, p - q)``, not normalised.

    If rounding leaves no positive entry, returns ``p`` itself.
    """
    if q is None:
        rest = p.copy()
        rest[token] = 0.0
    else:
        rest = np.maximum(p - q, 0.0)
    return rest if rest.any() else p


def draw(weights: Floats, uniform: float) -> int:
    """The token at this point of the cumulative weights; never one of weight 0."""
    summed = np.cumsum(weights)
    found = int(np.searchsorted(summed, uniform * summed[-1], side="right"))
    return found if found < len(summed) else int(np.flatnonzero(weights)[-1])


def coupled(proposed: Sequence[int], target: Floats, noise: Floats) -> Outcome:
    """Exact, and independent of the draft: the token at a position is a function of ``target`` and ``noise`` alone.

    A proposed token is kept if it is that token. A draft that runs the same :func:`race` over its own distribution
    proposes it often: it is kept with a probability of at least ``(1 - d) / (1 + d)``, where d is the distance in total
    variation (with :func:`rejection`: ``1 - d``). Daliri, Musco, Suresh 2024, "Coupling without Communication and
    Drafter-Invariant Speculative Decoding".

    Args:
        proposed, target: As for :func:`rejection`.
        noise: ``(k + 1, V)``, independent, exponentially distributed with mean 1; given by the position in the text.
    """
    for i, token in enumerate(proposed):
        own = race(target[i], noise[i])
        if token != own:
            return Outcome(i, own)
    return Outcome(len(proposed), race(target[-1], noise[len(proposed)]))


def race(p: Floats, noise: Floats) -> int:
    """The token whose exponential clock of rate ``p(token)`` rings first: each with its probability in ``p``."""
    return int(np.divide(noise, p, out=np.full(len(p), np.inf), where=p > 0).argmin())


def typical(
    proposed: Sequence[int], target: Floats, uniform: float, epsilon: float = 0.09, delta: float = 0.3
) -> Outcome:
    """Keep tokens that are not unlikely: at least ``min(epsilon, delta * exp(-H(p)))``, H the entropy. LOSSY.

    More is kept than by the exact rules, and the tokens do not have the target's distribution. Cai et al. 2024,
    "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", section 2.3.2; the defaults are
    those of its code. The token after the kept ones is drawn from the target.
    """
    for i, token in enumerate(proposed):
        if not likely(token, target[i], epsilon, delta):
            return Outcome(i, draw(target[i], uniform))
    return Outcome(len(proposed), draw(target[-1], uniform))


def likely(token: int, p: Floats, epsilon: float = 0.09, delta: float = 0.3) -> bool:
    """True if :func:`typical` keeps a token."""
    known = p[p > 0]
    entropy = -float((known * np.log(known)).sum())
    return bool(p[token] >= min(epsilon, delta * float(np.exp(-entropy))))
