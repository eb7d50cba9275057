"""Text that comes in pieces is the text as a whole, whatever the pieces."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.letters import LETTERS

from callboard.serve.generation.text import Detokenizer, StopStrings


def decode(tokens: list[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def sentence(tokens: list[int]) -> str:
    """As SentencePiece has it: the space before a word is dropped at the beginning of a text."""
    return "".join(WORDS[token] for token in tokens).removeprefix(" ")


WORDS = [" a", " house", "s", " in", "side", "."]


@given(st.text(LETTERS, max_size=30))
def test_characters_of_several_tokens(text: str) -> None:
    found = Detokenizer(decode)
    pieces = [found.add(token) for token in text.encode()]
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text
    assert "".join(pieces) + found.end() == text


@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=20))
def test_tokens_that_are_written_by_what_is_before_them(tokens: list[int]) -> None:
    found = Detokenizer(sentence)
    assert "".join([found.add(token) for token in tokens]) + found.end() == sentence(tokens)


def test_a_token_is_decoded_a_bounded_number_of_times() -> None:
    lengths: list[int] = []

    def counting(tokens: list[int]) -> str:
        lengths.append(len(tokens))
        return decode(tokens)

    found = Detokenizer(counting)
    for token in b"x" * 500:
        found.add(token)
    assert max(lengths) <= 2


def test_bytes_that_are_no_character_come_at_the_end() -> None:
    found = Detokenizer(decode)
    assert [found.add(token) for token in b"a\xc3"] == ["a", ""]
    assert found.end() == "\ufffd"


@given(data=st.data(), text=st.text("ab", max_size=30), stops=st.lists(st.text("ab", min_size=1, max_size=4)))
def test_stops(data: Any, text: str, stops: list[str]) -> None:
    found = StopStrings(stops)
    said, left = "", text
    while left and not found.stopped:
        n = data.draw(st.integers(1, len(left)))
        said += found.add(left[:n])
        left = left[n:]
        assert text.startswith(said)
    said += found.end()
    # A stop is found in the first piece with which one is complete; of those that are, the first in the text counts.
    seen = text[: len(text) - len(left)]
    places = [place for stop in stops if (place := seen.find(stop)) >= 0]
    assert said == (seen[: min(places)] if places else text)
    assert found.stopped == bool(places)


@pytest.mark.parametrize(
    "stop, pieces, says",
    [
        (["END"], ["on E", "N", "D more", "x"], ["on ", "", "", ""]),
        (["END"], ["E", "EN", "Ex"], ["", "E", "ENEx"]),
        ([], ["a", "b"], ["a", "b"]),
    ],
)
def test_what_may_be_a_stop_is_held_back(stop: list[str], pieces: list[str], says: list[str]) -> None:
    found = StopStrings(stop)
    assert [found.add(piece) for piece in pieces] == says


@pytest.mark.parametrize(
    "halves, text",
    [(["\ud83d", "\ude00", "!"], "\U0001f600!"), (["a", "\ud83d"], "a\ufffd"), (["\ude00", "b"], "\ufffdb")],
)
def test_halves_of_a_surrogate_pair_are_one_character_or_none(halves: list[str], text: str) -> None:
    found = Detokenizer(lambda tokens: "".join(halves[token] for token in tokens))
    assert "".join([found.add(token) for token in range(len(halves))]) + found.end() == text
