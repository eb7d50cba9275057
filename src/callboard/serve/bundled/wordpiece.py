"""``Tokens``: texts to lists of tokens, as BERT's uncased models split them.

Words by Unicode's categories, then the longest known pieces of each (Wu et al., arXiv:1609.08144). The package
tokenizers gives the same tokens from the model's ``tokenizer.json``.
"""

import functools
import re
import string
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from callboard.serve.errors import BadRequest
from callboard.serve.generation.ids import check_list

__all__ = ["MAX_TOKENS", "Tokens"]

MAX_TOKENS = 256
"""Tokens of a text at most, as the model was trained: longer texts are cut, as its authors do."""
LONGEST_WORD = 100
"""Characters; longer words are unknown."""
WORDS_KEPT = 1 << 16
"""Words whose pieces are remembered, at most."""
CHARACTERS_KEPT = 1 << 12
"""Characters whose places in words are remembered, at most."""
IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
"""Characters that are words by themselves, as BERT has them."""
SPECIAL = re.compile(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])")
"""Names of tokens, which stand for these tokens in texts, too."""


class Tokens:
    """Texts to lists of tokens; lists of tokens are checked.

    Args:
        folder: Folder that :func:`model_folder` returned.
    """

    def __init__(self, folder: Path) -> None:
        lines = (folder / "vocab.txt").read_text("utf-8").split("\n")
        self._known = {word: number for number, word in enumerate(lines) if word}
        self._unknown, self._begin, self._end = (self._known[name] for name in ("[UNK]", "[CLS]", "[SEP]"))
        self._pieces_of = functools.lru_cache(WORDS_KEPT)(self._pieces)

    def __call__(self, given: str | list[int]) -> list[int]:
        """The tokens of a text, with those for its begin and end; a list of tokens as it is.

        Raises:
            BadRequest: A list is empty or longer than :data:`MAX_TOKENS`, or has a number that is not a token.
        """
        if isinstance(given, str):
            return self._encoded(given)
        if not 1 <= len(given) <= MAX_TOKENS:
            raise BadRequest(f"there are {len(given)} tokens, and the model takes 1 to {MAX_TOKENS}")
        check_list("input", given, self.vocabulary)
        return given

    @property
    def vocabulary(self) -> int:
        """Number of the tokens."""
        return len(self._known)

    def _encoded(self, text: str) -> list[int]:
        tokens = [self._begin]
        for pieces in self._split(text):
            tokens += pieces
            if len(tokens) >= MAX_TOKENS:
                break
        return [*tokens[: MAX_TOKENS - 1], self._end]

    def _split(self, text: str) -> Iterator[tuple[int, ...]]:
        """The pieces of each word."""
        for at, part in enumerate(SPECIAL.split(text)):
            if at % 2:
                yield (self._known[part],)
            else:
                yield from map(self._pieces_of, _words(part))

    def _pieces(self, word: str) -> tuple[int, ...]:
        """The longest known piece, then the longest one of the rest, and so on."""
        if len(word) > LONGEST_WORD:
            return (self._unknown,)
        found, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in self._known), None)
            if end is None:
                return (self._unknown,)
            found.append(self._known[mark + word[start:end]])
            start = end
        return tuple(found)


class _Table(dict[int, str]):
    """A table for ``str.translate``, filled as characters come."""

    def __init__(self, of: Callable[[str], str]) -> None:
        self._of = of

    def __missing__(self, code: int) -> str:
        found = self._of(chr(code))
        if len(self) < CHARACTERS_KEPT:
            self[code] = found
        return found


def _cleaned(character: str) -> str:
    """Nothing for control characters, a blank for spaces, and ideographs between blanks."""
    if character in "\t\n\r":
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if character.isspace():
        return " "
    return f" {character} " if any(first <= ord(character) <= last for first, last in IDEOGRAPHS) else character


def _spread(character: str) -> str:
    """Lower case; nothing for accents, and punctuation, as which ASCII's symbols count, between blanks."""
    if unicodedata.category(character) == "Mn":
        return ""
    return "".join(f" {each} " if _is_alone(each) else each for each in character.lower())


def _is_alone(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


_CLEANED, _SPREAD = _Table(_cleaned), _Table(_spread)


def _words(text: str) -> list[str]:
    """Words in lower case, without accents; punctuation and ideographs are words of one character each."""
    return unicodedata.normalize("NFD", text.translate(_CLEANED)).translate(_SPREAD).split()
