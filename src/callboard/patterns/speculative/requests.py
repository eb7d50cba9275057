"""``Decode`` and ``Decoded``: a request to a speculative decoder, and its answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from callboard.patterns.speculative.sampling import Acceptance

__all__ = ["Decode", "Decoded", "Finish"]

Finish = Literal["eos", "stop", "length"]


@dataclass(frozen=True)
class Decode:
    """Continue a prefix.

    Attributes:
        prefix: Token ids, at least one.
        max_new_tokens: New tokens at most; None: only the server's ``max_total_tokens`` applies.
        temperature: 0 is greedy.
        seed: Equal seeds give equal tokens; None: chance.
        acceptance: Acceptance rule for temperatures above 0; None: ``"coupled"`` with a seed, so that the tokens depend
            on nothing else, and ``"rejection"`` without.
        k: Tokens proposed at once at most; None: the server's; 0: no speculation.
        stop: Sequences of token ids that end the text; they are part of it.
        stop_when: Called with the new tokens after each of them; the text ends when it returns True. For texts to stop
            at, for instance.
        adjust: ``adjust(tokens, logits)`` returns the logits to use after these tokens: a grammar's mask (minus
            infinity for excluded tokens), a penalty. Called once for each token of a verification.
        on_tokens: Called on the server's loop with each run of new tokens.
        parameters: Further parameters of the request, such as ``top_p``, for a step function that reads them. A
            speculative decoder does not.
    """

    prefix: Sequence[int]
    max_new_tokens: int | None = None
    temperature: float = 0.0
    seed: int | None = None
    acceptance: Acceptance | Literal["rejection", "coupled", "typical"] | None = None
    k: int | None = None
    stop: Sequence[Sequence[int]] = ()
    stop_when: Callable[[list[int]], bool] | None = None
    adjust: Callable[[list[int], NDArray[Any]], NDArray[Any]] | None = None
    on_tokens: Callable[[list[int]], object] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts: list[Any] = [self.prefix, *self.stop]
        if any(isinstance(each, str) for each in texts):
            raise TypeError("prefix and stop are tokens, not text: encode it with the tokenizer of the model")
        if not len(self.prefix):
            raise ValueError("prefix is empty; give at least one token, such as that of the beginning of a text")
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, but is {self.max_new_tokens}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a number of at least 0, but is {self.temperature}")
        if self.k is not None and self.k < 0:
            raise ValueError(f"k must be at least 0, but is {self.k}")
        if not all(len(each) for each in self.stop):
            raise ValueError("stop has an empty sequence; each must have at least one token")
        if self.acceptance is not None:
            Acceptance(self.acceptance)

    @property
    def rule(self) -> Acceptance:
        """The acceptance that is meant."""
        if self.acceptance is None:
            return Acceptance.REJECTION if self.seed is None else Acceptance.COUPLED
        return Acceptance(self.acceptance)


@dataclass(frozen=True)
class Decoded:
    """A continued prefix.

    Attributes:
        tokens: The prefix and the new tokens.
        new_tokens: The new ones.
        finish: ``"eos"``, ``"stop"`` or ``"length"``.
        iterations: Passes of the target.
        draft_tokens: Tokens that were proposed.
        accepted_tokens: Proposed tokens that were kept.
    """

    tokens: list[int]
    new_tokens: list[int]
    finish: Finish
    iterations: int
    draft_tokens: int
    accepted_tokens: int

    @property
    def final_len(self) -> int:
        """Number of tokens with the prefix."""
        return len(self.tokens)
