"""``KPolicy``: how many tokens are proposed for each sequence in the next pass. Pure: no clock, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from callboard.patterns.speculative.rates import TRUSTED, CostLine, HitRates, KeptRates, SizeCosts

__all__ = ["KPolicy", "Room"]

MARGIN = 1.02
"""Ratio of the expected throughput with speculation to that without from which speculation is used."""

PROBE_FIRST, PROBE_LAST = 8, 256
"""Passes without speculation until it is tried whether it pays again, for one sequence: doubled while it does not."""

RETHINK = 8
"""Passes between two reconsiderations while speculation is off: reconsidering takes tens of microseconds."""


@dataclass(frozen=True)
class Room:
    """One sequence of the next pass.

    Attributes:
        rates: Acceptance rates of its proposed tokens.
        most: Tokens that may be proposed for it.
    """

    rates: KeptRates
    most: int


class KPolicy:
    """Maximises the goodput of a pass: expected tokens per second, over all its sequences together.

    A pass over ``b`` sequences with proposals of ``k_1 … k_b`` tokens is expected to return ``b`` tokens plus those
    that are kept. It costs a pass over ``b + k_1 + … + k_b`` tokens, plus a draft of the largest ``k``. Both costs are
    measured. For a given largest ``k``, tokens are added in the order of the probability that they are kept, so no
    other selection is better. If no proposals are best, speculation is off (k = 0), and tried again for one sequence
    after 8 passes, 16, up to 256: with one token, or with ``k`` if tokens are mostly kept and only the costs are too
    high. The model follows Liu et al. 2024, "Optimizing Speculative Decoding for Serving Large Language Models Using
    Goodput".

    Args:
        k: Tokens proposed for a sequence at most.
        adaptive: Otherwise always ``k``.
        trees: Proposals are trees, whose tokens are ordered by their likelihood.
    """

    def __init__(self, k: int, *, adaptive: bool = True, trees: bool = False) -> None:
        if k < 0:
            raise ValueError(f"k must be at least 0, but is {k}")
        self.k = k
        self.adaptive = adaptive
        self._kind = HitRates if trees else KeptRates
        self._pool = self._kind(k, forget=0.99, weight=2)
        self._verify, self._draft = SizeCosts(), SizeCosts()
        for _ in range(TRUSTED):
            self._draft.add(0, 0.0)
        self._quiet = 0
        self._considered = 0  # sequences, the last time
        self._interval = PROBE_FIRST

    def rates(self) -> KeptRates:
        """Estimates for a new sequence, which start from those of all sequences."""
        return self._kind(self.k, forget=0.95, weight=4, pool=self._pool)

    def choose(self, rooms: Sequence[Room]) -> list[int]:
        """The number of tokens to propose for each sequence."""
        if not self.adaptive:
            return [room.most for room in rooms]
        chosen = [0] * len(rooms)
        if not self._verify.known or not any(room.most for room in rooms):  # plain passes are measured first
            return chosen
        if self._quiet % RETHINK == 0 or len(rooms) != self._considered:
            self._considered = len(rooms)
            best = _best(rooms, self._verify.line(), self._draft.line())
            if best:
                self._quiet, self._interval = 0, PROBE_FIRST
                for index in best:
                    chosen[index] += 1
                return chosen
        self._quiet += 1
        if self._quiet > self._interval:
            self._quiet, self._interval = 0, min(2 * self._interval, PROBE_LAST)
            able = [index for index, room in enumerate(rooms) if room.most]
            index = min(able, key=lambda index: rooms[index].rates.tried[0])
            chosen[index] = rooms[index].most if self._pool.rates()[0] > 0.5 else 1
        return chosen

    def verified(self, rates: KeptRates, proposed: int, kept: Sequence[int]) -> None:
        """Record the outcome of a proposal: the places whose tokens were kept."""
        if proposed == len(kept) == 1:  # a trial that went well; the next one comes earlier
            self._interval = max(PROBE_FIRST, self._interval // 4)
        for each in (rates, self._pool):
            if isinstance(each, HitRates):
                each.add_hits(proposed, kept)
            else:
                each.add(proposed, len(kept))

    def measured(self, tokens: int, verify: float, largest_k: int, draft: float) -> None:
        """Add the measured seconds of a pass over ``tokens`` tokens, and of the draft before it.

        The draft proposed at most ``largest_k`` tokens for each sequence.
        """
        self._verify.add(tokens, verify)
        if largest_k:
            self._draft.add(largest_k, draft)

    def seconds(self, tokens: int, largest_k: int) -> float:
        """The expected duration of such a pass, including its draft; 0 while nothing as small was measured."""
        if not self._verify.covers(tokens):
            return 0.0
        return self._verify.line().at(tokens) + (self._draft.line().at(largest_k) if largest_k else 0.0)


def _best(rooms: Sequence[Room], verify: CostLine, draft: CostLine) -> list[int]:
    """The sequences that get a token each, as often as they occur; none if that is best."""
    tokens = sorted(
        (-probability, place, index)
        for index, room in enumerate(rooms)
        for place, probability in enumerate(room.rates.survival(room.most), 1)
    )
    costs = [verify.at(len(rooms) + count) for count in range(len(tokens) + 1)]
    most = MARGIN * len(rooms) / costs[0] if costs[0] else 0.0
    best: list[int] = []
    for largest in range(1, 1 + max(room.most for room in rooms)):  # the draft costs by its longest proposal
        taken = [token for token in tokens if token[1] <= largest]
        expected, drafting, count = float(len(rooms)), draft.at(largest), 0
        for i, token in enumerate(taken, 1):
            expected -= token[0]
            seconds = costs[i] + drafting
            if seconds and expected / seconds > most:
                most, count = expected / seconds, i
        if count:
            best = [index for _, _, index in taken[:count]]
    return best
