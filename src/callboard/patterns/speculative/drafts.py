"""``Draft``: the proposer of tokens; also wraps a user's function."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.speculative.acceptance import Floats
from callboard.patterns.speculative.sampling import Sampler
from callboard.patterns.speculative.trees import chain, children

__all__ = ["Ask", "Draft", "FunctionDraft", "Proposal", "checked"]


@dataclass(frozen=True)
class Proposal:
    """Tokens that may come next.

    Attributes:
        tokens: The proposed tokens; fewer than requested, or none, if there is nothing to propose.
        probs: The distributions that they were drawn from, ``(len(tokens), vocabulary)``; None if they were not
            drawn. Exactness depends on these being true.
        parents: Parents of the tokens of a tree: for each token, the index of the token that it follows, -1 for the end
            of the text. Children of one token are different tokens, and parents come before their children. ``probs``
            is not used for trees. If the target does not verify trees, only the first child of each token is proposed.
            None: each token follows the one before.
    """

    tokens: Sequence[int]
    probs: Floats | None = None
    parents: Sequence[int] | None = None


@dataclass(frozen=True)
class Ask:
    """One sequence that is to be continued by a draft.

    Attributes:
        state: Object that the draft's ``begin`` returned for the sequence.
        tokens: The sequence; not to be changed.
        k: Number of tokens at most.
        sampler: Sampler of the request.
        trees: True if a tree can be verified.
    """

    state: Any
    tokens: list[int]
    k: int
    sampler: Sampler
    trees: bool = False


class Draft(ABC):
    """Proposes continuations for several sequences at once.

    An exception in place of a proposal, or raised by ``propose``, ends the use of the draft for that sequence, or for
    all sequences of the call. The sequences continue without it.
    """

    on_thread = False
    """True if a call cannot be interrupted."""
    trees = False
    """True if it proposes trees where it can."""

    def begin(self) -> Any:
        """The state of a new sequence."""
        return None

    def end(self, state: Any) -> None:
        """The sequence has ended, or continues without this draft."""

    @abstractmethod
    async def propose(self, asks: list[Ask]) -> Sequence[Proposal | Exception]:
        """One proposal for each, in their order."""

    def close(self) -> None:
        """No more calls will come."""


class FunctionDraft(Draft):
    """A function of the user's: ``draft(prefix, k)`` returns tokens, or a :class:`Proposal`.

    Args:
        function: Plain, async, or a method of a resident actor. It gets a copy of the tokens.
        executor: Executor for :class:`UserCall`.
    """

    def __init__(self, function: Callable[[list[int], int], Any], executor: Executor = "auto") -> None:
        self._call = UserCall(function, executor, 1)
        self.on_thread = self._call.on_thread

    async def propose(self, asks: list[Ask]) -> list[Proposal | Exception]:
        """Call the function for one sequence after the other."""
        found: list[Proposal | Exception] = []
        for ask in asks:
            try:
                given = await self._call(list(ask.tokens), ask.k)
            except Exception as e:  # the user's function may raise anything: this sequence continues without it
                found.append(deliverable(e))
            else:
                found.append(given if isinstance(given, Proposal) else Proposal(given))
        return found

    def close(self) -> None:
        """End the thread."""
        self._call.close()


def checked(proposal: Proposal, k: int, vocabulary: int, *, trees: bool = False) -> Proposal:
    """The proposal with at most ``k`` tokens, which are plain numbers; without branches unless there are ``trees``.

    Raises:
        TypeError, ValueError: It is not a proposal: not a sequence of numbers, tokens outside the vocabulary, or
            probabilities that do not fit the tokens.
    """
    tokens = [int(token) for token in list(proposal.tokens)[:k]]
    if tokens and (min(tokens) < 0 or max(tokens) >= vocabulary):
        raise ValueError(f"the draft proposed {tokens}, and tokens are from 0 to {vocabulary - 1}")
    if proposal.parents is not None:
        parents = [int(parent) for parent in list(proposal.parents)[:k]]
        children(tokens, parents)  # checks them
        if trees:
            return Proposal(tokens, parents=parents)
        return Proposal([tokens[node] for node in chain(parents)])
    if proposal.probs is None or not tokens:
        return Proposal(tokens)
    probs = np.asarray(proposal.probs, np.float64)
    if probs.ndim != 2 or len(probs) < len(tokens) or probs.shape[1] != vocabulary:
        raise ValueError(f"the draft's probs have shape {probs.shape}, not ({len(tokens)}, {vocabulary})")
    probs = probs[: len(tokens)]
    if not (probs >= 0).all() or not np.allclose(probs.sum(axis=1), 1.0, atol=1e-3):
        raise ValueError("the draft's probs are not distributions: each row must be at least 0 and sum to 1")
    if not all(probs[i, token] > 0 for i, token in enumerate(tokens)):
        raise ValueError("the draft proposed a token to which its own probs give 0")
    return Proposal(tokens, probs / probs.sum(axis=1, keepdims=True))
