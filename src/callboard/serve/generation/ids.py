"""Token ids that clients send: they are checked before a model looks them up in its tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.serve.errors import BadRequest
from callboard.serve.generation.quoting import quoted

__all__ = ["check_bias", "check_ids", "check_list"]

MOST = (1 << 31) - 1
"""The largest id where the vocabulary is not known: models hold ids in 32 bits or more."""
LONGEST = 20
"""Digits of an id at most."""

MOST_BIASES = 1024
"""Entries of a ``logit_bias`` at most: a model applies each of them to every token."""


def check_ids(field: str, given: Any, vocabulary: int | None) -> None:
    """Check the token ids of a request's field, if it has any: a text, texts, a list of tokens, or lists of tokens.

    Args:
        field: Name of the field.
        given: Its value.
        vocabulary: Number of the model's tokens; None: it is not known.

    Raises:
        BadRequest: One is not an id; names its place and value.
    """
    if isinstance(given, str) or not given or isinstance(given[0], str):
        return
    if not isinstance(given[0], list):
        check_list(field, given, vocabulary)
        return
    for place, tokens in enumerate(given):
        check_list(f"{field}[{place}]", tokens, vocabulary)


def check_list(what: str, tokens: Sequence[Any], vocabulary: int | None) -> None:
    """Check a list of token ids.

    Raises:
        BadRequest: As for :func:`check_ids`.
    """
    last = MOST if vocabulary is None else vocabulary - 1
    if not tokens or (set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) <= last):
        return
    place, wrong = next(
        (place, token) for place, token in enumerate(tokens) if type(token) is not int or not 0 <= token <= last
    )
    raise BadRequest(f"{what}[{place}]: {quoted(wrong)} is not a token: they are whole numbers from 0 to {last}")


def check_bias(bias: Mapping[str, float] | None, vocabulary: int | None) -> None:
    """Check the token ids of a ``logit_bias``, which JSON has as texts.

    Raises:
        BadRequest: One is not an id, which is named, or there are too many.
    """
    if bias is not None and len(bias) > MOST_BIASES:
        raise BadRequest(f"logit_bias has {len(bias)} entries, and may have {MOST_BIASES}")
    last = MOST if vocabulary is None else vocabulary - 1
    for token in bias or ():
        if not (token.isascii() and token.isdecimal() and len(token) <= LONGEST and int(token) <= last):
            raise BadRequest(f"logit_bias: {quoted(token)} is not a token: they are whole numbers from 0 to {last}")
