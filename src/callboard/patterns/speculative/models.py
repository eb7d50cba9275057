"""The interface of a language model to the decoder: a pass over many sequences, and the state of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from callboard.patterns.speculative.trees import path_to

__all__ = ["Cacheless", "KvState", "LanguageModel", "Model", "TokenState", "TreeModel", "TreeState"]


class KvState(Protocol):
    """The state of one sequence in a model, such as its KV cache. The decoder only holds and returns it.

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


class TreeState(KvState, Protocol):
    """The state of one sequence in a model that verifies trees."""

    def keep(self, places: list[int]) -> None:
        """Keep these tokens of the last pass over a tree, in this order, and discard the others."""
        ...


class TreeModel(LanguageModel, Protocol):
    """A target that verifies several continuations of a text in one pass; its states are :class:`TreeState`."""

    @property
    def forward_tree(self) -> Callable[[list[Any], list[list[int]], list[list[int]], list[int]], Any]:
        """``forward_tree(states, tokens, parents, rows)`` is a pass over trees.

        ``parents[i][n]`` is the index in ``tokens[i]`` of the token that token ``n`` follows, -1 for the kept text: a
        token attends to the kept text and to its ancestors, and its position is one beyond its parent's. Logits are
        returned as by ``forward``, those after each of the last ``rows[i]`` tokens.
        """
        ...


@dataclass(frozen=True)
class Model:
    """A model of callables, for instance ``functools.partial(actor.call, Lm.forward)`` of a resident actor."""

    forward: Callable[[list[Any], list[list[int]], list[int]], Any]
    begin: Callable[[], KvState]
    forward_tree: Callable[[list[Any], list[list[int]], list[list[int]], list[int]], Any] | None = None


@dataclass
class TokenState:
    """The state of a model without a cache: the tokens themselves."""

    tokens: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    def keep(self, places: list[int]) -> None:
        """Append these of the last tree."""
        self.tokens += [self.pending[place] for place in places]
        self.pending = []

    def rollback(self, n: int) -> None:
        """Forget the last ``n`` tokens."""
        del self.tokens[len(self.tokens) - n :]

    def close(self) -> None:
        """Do nothing: no state is kept elsewhere."""


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

    def forward_tree(
        self, states: list[TokenState], tokens: list[list[int]], parents: list[list[int]], rows: list[int]
    ) -> list[Any]:
        """Compute each branch as a separate sequence."""
        sequences: list[list[int]] = []
        for state, new, before, count in zip(states, tokens, parents, rows, strict=True):
            state.pending = new
            places = range(len(new) - count, len(new))
            sequences += [[*state.tokens, *(new[each] for each in path_to(place, before))] for place in places]
        after = iter(self._logits(sequences, [1] * len(sequences)))
        return [np.concatenate([np.asarray(next(after)) for _ in range(count)]) for count in rows]
