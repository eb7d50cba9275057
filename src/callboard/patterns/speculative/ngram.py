"""``NGramDraft``: proposes the tokens that followed an earlier occurrence of the last ones (prompt lookup)."""

from collections.abc import Sequence

from callboard.patterns.speculative.drafts import Ask, Draft, Proposal

__all__ = ["NGramDraft"]


class NGramDraft(Draft):
    """Finds the last tokens in the text so far, and proposes their continuation. Costs microseconds, no model.

    It pays where answers repeat their prompts: summaries, edits, code. Saxena 2023, "Prompt Lookup Decoding".

    Args:
        longest: Tokens that are looked up at first, then fewer.
        shortest: And at last.

    Raises:
        ValueError: Not ``1 <= shortest <= longest``.
    """

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest must be from 1 to longest, but they are {shortest} and {longest}")
        self._lengths = range(longest, shortest - 1, -1)

    def begin(self) -> "_Index":
        """An empty index."""
        return _Index(self._lengths)

    async def propose(self, asks: list[Ask]) -> Sequence[Proposal]:
        """Propose the tokens that followed before; none if the last ones are new."""
        return [Proposal(ask.state.lookup(ask.tokens, ask.k)) for ask in asks]


class _Index:
    """The last continuation of each sequence of tokens."""

    def __init__(self, lengths: range) -> None:
        self._lengths = lengths
        self._after: dict[tuple[int, ...], int] = {}  # position after the last occurrence that is followed by a token
        self._known = 0  # tokens[: _known] have been indexed

    def lookup(self, tokens: list[int], k: int) -> list[int]:
        for end in range(self._known, len(tokens)):
            for length in self._lengths:
                if length <= end:
                    self._after[tuple(tokens[end - length : end])] = end
        self._known = len(tokens)
        for length in self._lengths:
            if length < len(tokens):
                start = self._after.get(tuple(tokens[-length:]))
                if start is not None:
                    return _continued(tokens, start, k)
        return []


def _continued(tokens: list[int], start: int, k: int) -> list[int]:
    """Return ``k`` tokens from ``start``; beyond the end the text is taken to continue periodically."""
    found = tokens[start : start + k]
    period = len(tokens) - start
    while len(found) < k:
        found.append(found[len(found) - period])
    return found
