"""``Sequence``: one text that is being decoded."""

from typing import Any

from callboard.patterns.contract.hooks import truth
from callboard.patterns.requests.entries import Entry
from callboard.patterns.speculative.models import KvState
from callboard.patterns.speculative.rates import KeptRates
from callboard.patterns.speculative.requests import Decode, Decoded, Finish
from callboard.patterns.speculative.sampling import Sampler

__all__ = ["Sequence"]


class Sequence:
    """A request while it runs.

    Attributes:
        entry: Entry of the server.
        request: The request.
        tokens: The text so far.
        pending: Number of its last tokens that the target has not processed.
        state: The target's.
        sampler: Chooses its tokens.
        rates: Acceptance rates of proposed tokens.
        draft: State of the draft; None: the sequence continues without a draft.
        finish: The reason why it has ended; None while it has not.
    """

    def __init__(
        self, entry: Entry, request: Decode, state: KvState, rates: KeptRates, last: int, eos: frozenset[int]
    ) -> None:
        self.entry = entry
        self.request = request
        self.tokens = [int(token) for token in request.prefix]
        self.start = self.pending = len(self.tokens)
        self.state = state
        self.sampler = Sampler(request.temperature, request.seed, request.rule)
        self.rates = rates
        self.draft: Any = None
        self.speculates = False
        self.finish: Finish | None = None
        self.iterations = self.draft_tokens = self.accepted_tokens = 0
        self._last = last if request.max_new_tokens is None else min(last, self.start + request.max_new_tokens)
        self._eos = eos
        self._stops = [[int(token) for token in each] for each in request.stop]

    @property
    def held(self) -> bool:
        """True if it waits for the reader of its tokens."""
        return self.entry.outlet is not None and self.entry.outlet.full

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        return self._last - len(self.tokens)

    def extend(self, run: list[int]) -> list[int]:
        """Append tokens up to where the text ends; returns those that were appended.

        Raises:
            Exception: Raised by ``stop_when``.
        """
        before = len(self.tokens)
        for token in run:
            self.tokens.append(token)
            self.finish = self._ended(token)
            if self.finish is not None:
                break
        return self.tokens[before:]

    def _ended(self, token: int) -> Finish | None:
        if token in self._eos:
            return "eos"
        new = len(self.tokens) - self.start
        if any(len(stop) <= new and self.tokens[-len(stop) :] == stop for stop in self._stops):
            return "stop"
        stop_when = self.request.stop_when
        if stop_when is not None and truth("stop_when", stop_when(self.tokens[self.start :])):
            return "stop"
        return "length" if self.room <= 0 else None

    def decoded(self) -> Decoded:
        """The answer."""
        assert self.finish is not None
        return Decoded(
            self.tokens,
            self.tokens[self.start :],
            self.finish,
            self.iterations,
            self.draft_tokens,
            self.accepted_tokens,
        )
