"""The terms of a text by which it is found: words without those of every question, and without plurals."""

from callboard.agents.index.text import words

__all__ = ["terms"]

_COMMON = frozenset(
    "a an and are as at be by can did do does for from had has have how i if in is it its may me my not of on or our "  # noqa: SIM905
    "should that the there this to was we what when where which who whose why will with would you your".split()
)


def terms(text: str) -> list[str]:
    """The words that tell texts apart; all words, if it has no others."""
    found = words(text)
    return [_stem(word) for word in found if word not in _COMMON] or found


def _stem(word: str) -> str:
    """A word without the s of the plural or of the third person: enough to count a word's forms as one."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
