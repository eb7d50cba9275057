"""``SuffixDraft``: proposes continuations of the last tokens, as a tree ordered by their frequency."""

import heapq
import itertools
from collections.abc import Sequence
from typing import Any

from callboard.patterns.contract.checks import check_whole
from callboard.patterns.speculative.drafts import Ask, Draft, Proposal

__all__ = ["SuffixDraft"]

AHEAD = 16
"""Tokens that are recorded after a run of the largest length."""


class SuffixDraft(Draft):
    """Proposes the likeliest continuations of the longest known run of the last tokens.

    It counts the continuations of each run of tokens.

    If the target verifies trees (:class:`TreeModel`), several continuations are proposed at once, otherwise the
    likeliest. A token costs some ten microseconds, and no model is needed. It pays off when texts repeat themselves,
    their prompts or, with ``shared``, each other: agents, code, forms. Oliaro et al. 2024, "SuffixDecoding".

    Args:
        longest: Tokens of a run that is looked up, at most.
        least: Probability below which a continuation is not proposed, by the counts.
        shared: Learn also from other texts, including finished ones. This does not change any tokens, but the time that
            a text takes reveals something about other texts: do not use it for tenants that must stay isolated.
        most: Recorded runs at most, of some 200 bytes each; when there are more, all are dropped.

    Raises:
        ValueError: A setting out of range.
    """

    trees = True

    def __init__(self, longest: int = 8, *, least: float = 0.05, shared: bool = False, most: int = 500_000) -> None:
        check_whole(1, longest=longest, most=most)
        if not 0 < least <= 1:
            raise ValueError(f"least must be above 0 and at most 1, but is {least}")
        self._longest, self._least, self._most = longest, least, most
        self._common = _Runs(most) if shared else None

    def begin(self) -> "_Text":
        """Return the state of a new text, with nothing counted."""
        return _Text(self._longest, self._common or _Runs(self._most))

    async def propose(self, asks: list[Ask]) -> Sequence[Proposal]:
        """The likeliest continuations; no tokens if the last one is new."""
        return [ask.state.proposal(ask, self._least) for ask in asks]


class _Run:
    """A run of tokens: its number of occurrences, and its successors."""

    __slots__ = ("after", "count")

    def __init__(self) -> None:
        self.count = 0
        self.after: dict[int, _Run] = {}


class _Runs:
    """A bounded trie of runs."""

    def __init__(self, most: int) -> None:
        self.root = _Run()
        self._most = most
        self._made = 0

    def count(self, runs: list[_Run], token: int, longest: int) -> list[_Run]:
        """Count a token that followed these runs, which are suffixes of each other; returns the runs that end in it."""
        if self._made > self._most:
            self.root, self._made, runs = _Run(), 0, []
        found: list[_Run] = []
        for run in (self.root, *runs[: longest - 1]):  # the shortest first
            after = run.after.get(token)
            if after is None:
                after = run.after[token] = _Run()
                self._made += 1
            after.count += 1
            found.append(after)
        return found


class _Text:
    """One text: its counts, and the runs that it ends in."""

    def __init__(self, longest: int, runs: _Runs) -> None:
        self._longest = longest
        self._runs = runs
        self._known = 0
        self._ends: list[_Run] = []

    def proposal(self, ask: Ask, least: float) -> Proposal:
        for token in ask.tokens[self._known :]:
            self._ends = self._runs.count(self._ends, token, self._longest + AHEAD)
        self._known = len(ask.tokens)
        longest = next((run for run in reversed(self._ends[: self._longest]) if run.after), None)
        if longest is None:
            return Proposal([])
        return _likeliest(longest, ask.k, least) if ask.trees else _chain(longest, ask.k, least)


def _likeliest(start: _Run, k: int, least: float) -> Proposal:
    """The ``k`` continuations that are likeliest by the counts, those before them included."""
    tokens: list[int] = []
    parents: list[int] = []
    order = itertools.count()
    heap: list[Any] = []

    def add(run: _Run, parent: int, probability: float) -> None:
        total = sum(after.count for after in run.after.values())
        for token, after in run.after.items():
            likely = probability * after.count / total
            if likely >= least:
                heapq.heappush(heap, (-likely, next(order), token, parent, after))

    add(start, -1, 1.0)
    while heap and len(tokens) < k:
        negative, _, token, parent, run = heapq.heappop(heap)
        tokens.append(token)
        parents.append(parent)
        add(run, len(tokens) - 1, -negative)
    return Proposal(tokens, parents=parents)


def _chain(run: _Run, k: int, least: float) -> Proposal:
    """The likeliest token after each."""
    tokens: list[int] = []
    probability = 1.0
    while run.after and len(tokens) < k:
        total = sum(after.count for after in run.after.values())
        token, after = max(run.after.items(), key=lambda each: each[1].count)
        probability *= after.count / total
        if probability < least:
            break
        tokens.append(token)
        run = after
    return Proposal(tokens)
