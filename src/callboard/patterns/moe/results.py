"""The result of a request to a router, and the figures of a router."""

from dataclasses import dataclass
from functools import cached_property

from callboard.patterns.moe.arrays import Array
from callboard.patterns.moe.backward import Tape
from callboard.patterns.moe.balance import load_balancing_loss, z_loss
from callboard.patterns.moe.gate import Choice
from callboard.patterns.requests.stats import Distribution, ServerStats

__all__ = ["MoeResult", "MoeStats"]


@dataclass(frozen=True, eq=False)
class MoeResult:
    """The value of one request.

    Attributes:
        output: One row for each token, in the shape of the tokens but for their last axis.
        choice: Logits, scores, chosen experts and weights of each token, before any capacity.
        load: Rows that each expert was given.
        dropped: Choices that found no room in their expert.
        rerouted: Choices that went to another expert.
        failed: Numbers of the experts that failed, whose weights the others have taken over.
        tape: Data for :meth:`MoeRouter.backward`; None if the router has no ``backward``.
    """

    output: Array
    choice: Choice
    load: Array
    dropped: int
    rerouted: int
    failed: tuple[int, ...]
    tape: Tape | None = None

    @cached_property
    def load_balancing_loss(self) -> float:
        """See :func:`callboard.patterns.moe.balance.load_balancing_loss`. Computed on first use."""
        return load_balancing_loss(self.choice)

    @cached_property
    def z_loss(self) -> float:
        """See :func:`callboard.patterns.moe.balance.z_loss`. Computed on first use."""
        return z_loss(self.choice)


@dataclass(frozen=True)
class MoeStats(ServerStats):
    """Figures of a router.

    Attributes:
        tokens: Tokens for which experts were chosen.
        load: Rows that each expert was given.
        entropy: Evenness of ``load``: 1 if it is even, 0 if one expert has all of it.
        choices_dropped: Choices of tokens that found no room in their expert.
        choices_rerouted: Choices that went to another expert.
        failed_calls: Calls of each expert that failed.
        run_time: Seconds from the call of the gate to the value, of the completed requests.
    """

    tokens: int
    load: tuple[int, ...]
    entropy: float
    choices_dropped: int
    choices_rerouted: int
    failed_calls: tuple[int, ...]
    run_time: Distribution
