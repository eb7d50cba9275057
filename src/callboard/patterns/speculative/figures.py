"""``SpeculativeStats``: figures of a speculative decoder, and where they are counted."""

from dataclasses import dataclass

from callboard.patterns.requests.stats import SIZES, Distribution, Histogram, ServerStats

__all__ = ["Figures", "SpeculativeStats"]


@dataclass(frozen=True)
class SpeculativeStats(ServerStats):
    """Figures of a speculative decoder.

    Attributes:
        iterations: Passes of the target.
        new_tokens: Tokens that were decoded.
        draft_tokens: Tokens that were proposed.
        accepted_tokens: Proposed tokens that became part of a text.
        acceptance_by_position: For each place after a text, the share of its proposals that included a token that was
            kept; 0.0 if there was no proposal.
        mean_accepted_length: Mean tokens per verified proposal, including the one that the target adds; 0.0 if there
            was no proposal.
        speedup: Estimate: the time that passes without speculation would have taken for the same tokens, divided by
            that of the passes and drafts that were run, both from the times measured. 1.0 while no pass
            without speculation was measured.
        draft_failures: Sequences that continued without the draft.
        step_time: Seconds of a pass, with the draft's.
        batch_size: Texts per pass.
    """

    iterations: int
    new_tokens: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_by_position: tuple[float, ...]
    mean_accepted_length: float
    speedup: float
    draft_failures: int
    step_time: Distribution
    batch_size: Distribution


class Figures:
    """Counters of the passes.

    Args:
        k: Tokens of a proposal at most.
    """

    def __init__(self, k: int) -> None:
        self.iterations = self.new_tokens = self.draft_failures = 0
        self.step_time, self.batch_size = Histogram(), Histogram(SIZES)
        self._proposals = self._from_proposals = 0
        self._proposed, self._kept = [0] * k, [0] * k
        self.draft_tokens = 0
        self._plain = self._spent = 0.0

    def kept(self, tokens: int, proposed: int, kept: int, run: int) -> None:
        """Count a verification: ``tokens`` were proposed for ``proposed`` places, and ``kept`` of them were kept.

        With the target's own token, the text grew by ``run``.
        """
        self.new_tokens += run
        self.draft_tokens += tokens
        if proposed:
            self._proposals += 1
            self._from_proposals += run
        for i in range(proposed):
            self._proposed[i] += 1
            self._kept[i] += i < kept

    def compared(self, plain: float, spent: float) -> None:
        """Seconds that the tokens of a pass take without speculation, and as they came; by the costs that are known."""
        self._plain += plain
        self._spent += spent

    @property
    def accepted_tokens(self) -> int:
        """The number of proposed tokens that were kept."""
        return sum(self._kept)

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """The share that was kept at each place of a proposal."""
        by_position = zip(self._kept, self._proposed, strict=True)
        return tuple(kept / proposed if proposed else 0.0 for kept, proposed in by_position)

    @property
    def mean_accepted_length(self) -> float:
        """Tokens of a verified proposal, with the target's."""
        return self._from_proposals / self._proposals if self._proposals else 0.0

    @property
    def speedup(self) -> float:
        """Time without speculation to time spent."""
        return self._plain / self._spent if self._plain and self._spent else 1.0
