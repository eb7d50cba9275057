"""From tokens to text as they come: ``Detokenizer`` and ``StopStrings``. No I/O."""

from collections.abc import Callable, Sequence

from callboard.actors.errors import returned

__all__ = ["Detokenizer", "StopStrings"]

UNFINISHED = "\ufffd"
"""The output of a decoder for bytes that are not a character, or not yet."""


class Detokenizer:
    """The text of tokens that come one by one: characters that need several of them come when they are complete.

    The text of a token depends on the tokens before it (a space, half a character), so it is decoded together with a
    few of them. Each token is decoded a bounded number of times (Hugging Face, "text-generation-inference",
    detokenisation by two offsets).

    Args:
        decode: Text of tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._said = 0  # of these tokens, the text was given

    def add(self, token: int) -> str:
        """The text that is certain with this token; may be empty."""
        self._tokens.append(token)
        return self._more(final=False)

    def end(self) -> str:
        """The remaining text, also if it is not a character."""
        return self._more(final=True)

    def _more(self, *, final: bool) -> str:
        before = self._text(self._tokens[: self._said]) if self._said else ""
        text = self._text(self._tokens)
        if len(text) <= len(before) or (text.endswith(UNFINISHED) and not final):
            return ""
        self._tokens = self._tokens[self._said :]
        self._said = len(self._tokens)
        return text[len(before) :]

    def _text(self, tokens: list[int]) -> str:
        text: object = self._decode(tokens)
        if not isinstance(text, str):
            raise returned("decode", text, "a str")
        if text.isascii():
            return text
        # Tokens may be halves of surrogate pairs, which are characters only together.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class StopStrings:
    """Ends a text before the first of some strings, and holds back a possible beginning of one.

    Args:
        stops: None of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """The text that is final with this one; text after a stop is dropped."""
        if self.stopped:
            return ""
        before = len(self._held)  # no stop is in this part alone
        text = self._held + text
        found = [place for stop in self._stops if (place := text.find(stop, max(0, before - len(stop) + 1))) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """The text that was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that the string begins with."""
    place = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while place >= 0 and not stop.startswith(text[place:]):
        place = text.find(stop[0], place + 1)
    return 0 if place < 0 else len(text) - place
