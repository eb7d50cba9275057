"""``Sampler``: the choice of the tokens of one request, and its random numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.patterns.contract.checks import OneOf
from callboard.patterns.speculative.acceptance import (
    Floats,
    Outcome,
    coupled,
    draw,
    greedy,
    likely,
    race,
    rejection,
    typical,
)
from callboard.patterns.speculative.trees import walk

__all__ = ["Acceptance", "Sampler"]


class Acceptance(OneOf):
    """The acceptance rule for proposed tokens at a temperature above 0. Members equal their texts."""

    REJECTION = "rejection"
    """Exact; keeps the most tokens. The tokens of a seed depend on the proposals, and so on ``k``."""
    COUPLED = "coupled"
    """Exact; keeps a little less with a draft that samples. The tokens of a seed are the same with any draft and k."""
    TYPICAL = "typical"
    """LOSSY: tokens that are not unlikely are kept, so the tokens do not have the target's distribution."""


class Sampler:
    """Chooses the tokens of one request.

    Args:
        temperature: Divides the logits; 0 is greedy.
        seed: Equal seeds give equal tokens; None takes one from the operating system.
        acceptance: Acceptance rule for temperatures above 0.
    """

    def __init__(self, temperature: float, seed: int | None, acceptance: Acceptance) -> None:
        self.temperature = temperature
        self.acceptance = acceptance
        if temperature:
            root = np.random.SeedSequence(seed)
            self._key = root.generate_state(2, np.uint64)
            self._verifying, self._drafting = (np.random.default_rng(each) for each in root.spawn(2))

    def distribution(self, logits: NDArray[Any]) -> Floats:
        """Softmax along the last axis, at the temperature."""
        scaled = logits.astype(np.float64) / self.temperature
        scaled -= scaled.max(axis=-1, keepdims=True)
        np.exp(scaled, out=scaled)
        scaled /= scaled.sum(axis=-1, keepdims=True)
        return scaled

    def propose(self, logits: NDArray[Any], position: int) -> tuple[int, Floats | None]:
        """A draft's token from its logits, and the distribution that it was drawn from; None: it was certain."""
        if not self.temperature:
            return int(logits.argmax()), None
        p = self.distribution(logits)
        if self.acceptance is Acceptance.COUPLED:
            return race(p, self._noise(position, len(p))), p
        return draw(p, self._drafting.random()), p

    def accept(self, proposed: Sequence[int], draft: Floats | None, logits: NDArray[Any], position: int) -> Outcome:
        """Verify a proposal whose first token is for this position of the text, against the target's logits."""
        if not self.temperature:
            return greedy(proposed, logits)
        target = self.distribution(logits)
        if self.acceptance is Acceptance.COUPLED:
            noise = np.stack([self._noise(position + i, target.shape[1]) for i in range(len(proposed) + 1)])
            return coupled(proposed, target, noise)
        if self.acceptance is Acceptance.TYPICAL:
            return typical(proposed, target, self._verifying.random())
        return rejection(proposed, draft, target, self._verifying.random(len(proposed) + 1).tolist())

    def accept_tree(
        self, follow: Sequence[dict[int, int]], logits: NDArray[Any], position: int
    ) -> tuple[list[int], int]:
        """Verify a tree and return the nodes that are kept, and the token after them. See :func:`walk`."""
        if not self.temperature:
            best = logits.argmax(axis=1).tolist()
            return walk(follow, lambda row, depth, after: best[row])
        target = self.distribution(logits)

        def choose(row: int, depth: int, after: dict[int, int]) -> int:
            p = target[row]
            if self.acceptance is Acceptance.COUPLED:
                return race(p, self._noise(position + depth, len(p)))
            if self.acceptance is Acceptance.TYPICAL and after:
                likeliest = max(after, key=lambda token: float(p[token]))
                if likely(likeliest, p):
                    return likeliest
            return draw(p, self._verifying.random())

        return walk(follow, choose)

    def _noise(self, position: int, size: int) -> Floats:
        generator = np.random.Generator(np.random.Philox(key=self._key, counter=[0, 0, 0, position]))
        return generator.standard_exponential(size)
