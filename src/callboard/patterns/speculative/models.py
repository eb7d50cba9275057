"""What a language model is to the decoder: a pass over many sequences, and the state that it keeps of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Cacheless", "KvState", "LanguageModel", "Model", "TokenState"]


class KvState(Protocol):
    """What a model keeps of one sequence, such as its KV cache. The decoder only holds and returns it.

    Both methods are called on the server's loop while no pass runs, and must return at once: for a cache they change a
    length. A state that is kept elsewhere (a resident actor) is a number and a length here, and travels with the pass.
    """

    def rollback(self, n: int) -> None:
        """Forget the last ``n`` tokens."""
        ...

    def close(self) -> None:
        """The sequence has ended."""
        ...


class LanguageModel(Protocol):
    """A model, as target or as draft."""

    @property
    def begin(self) -> Callable[[], KvState]:
        """``begin()`` makes the state of a new, empty sequence; called on the server's loop."""
        ...

    @property
    def forward(self) -> Callable[[list[Any], list[list[int]], list[int]], Any]:
        """``forward(states, tokens, rows)`` is one pass over sequences of unequal lengths.

        It appends ``tokens[i]`` to sequence ``i``, and returns (or is awaited for) one array of logits for each:
        those after each of its last ``rows[i]`` tokens, ``(rows[i], vocabulary)``. Called like the function of a
        :class:`DynamicBatchingServer`: plain functions on a thread, async ones on the loop.
        """
        ...


@dataclass(frozen=True)
class Model:
    """A model of two callables, for instance ``functools.partial(actor.call, Lm.forward)`` of a resident actor."""

    forward: Callable[[list[Any], list[list[int]], list[int]], Any]
    begin: Callable[[], KvState]


@dataclass
class TokenState:
    """The state of a model without a cache: the tokens themselves."""

    tokens: list[int] = field(default_factory=list)

    def rollback(self, n: int) -> None:
        """Forget the last ``n`` tokens."""
        del self.tokens[len(self.tokens) - n :]

    def close(self) -> None:
        """Nothing is kept elsewhere."""


class Cacheless:
    """A model that computes whole sequences anew in each pass.

    Args:
        logits: ``logits(sequences, rows)`` returns for each sequence the logits after its last ``rows[i]`` tokens; a
            plain function.
    """

    def __init__(self, logits: Callable[[list[list[int]], list[int]], Sequence[Any]]) -> None:
        self._logits = logits

    def begin(self) -> TokenState:
        """An empty sequence."""
        return TokenState()

    def forward(self, states: list[TokenState], tokens: list[list[int]], rows: list[int]) -> Sequence[Any]:
        """Append the tokens, and compute."""
        for state, new in zip(states, tokens, strict=True):
            state.tokens += new
        return self._logits([state.tokens for state in states], rows)
