"""Parameters of text generation that only some models take, and the values of them that change no answer."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from callboard.serve.errors import BadRequest
from callboard.serve.generation.quoting import quoted

__all__ = ["CHAT_ONLY", "PARAMETERS", "check_stop", "check_takes", "parameters_of"]

PARAMETERS: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "prediction": (),
    "audio": (),
    "web_search_options": (),
}
"""Neutral values of each, beside null: these are accepted for every model."""

CHAT_ONLY = frozenset(("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"))
"""Parameters of the prompt rather than of the tokens."""

BY_THE_EDGE = frozenset(("n",))
"""Parameters that need nothing of a model."""

MOST_STOPS = 16
"""Strings of ``stop`` at most (4 in OpenAI's API): the new text is searched for each of them at every token."""
LONGEST_STOP = 256
"""Characters of one at most: a text is held back while it may become one."""


def check_stop(stop: Sequence[str]) -> None:
    """Check the strings of ``stop``.

    Raises:
        BadRequest: They are too many, or one is too long or empty.
    """
    if len(stop) > MOST_STOPS:
        raise BadRequest(f"stop has {len(stop)} strings, and may have {MOST_STOPS}")
    for place, each in enumerate(stop):
        if not each:
            raise BadRequest("stop has an empty string")
        if len(each) > LONGEST_STOP:
            raise BadRequest(f"stop[{place}] has {len(each)} characters, and may have {LONGEST_STOP}")


def check_takes(model: str, takes: Iterable[str]) -> frozenset[str]:
    """The names of parameters that a model takes.

    Raises:
        ValueError: One of them is no parameter.
    """
    found = frozenset(takes)
    unknown = sorted(found - PARAMETERS.keys() - BY_THE_EDGE)
    if unknown:
        raise ValueError(f"model {model!r}: takes has {unknown[0]!r}; it may have {', '.join(sorted(PARAMETERS))}")
    return found


def parameters_of(request: object, takes: Collection[str]) -> dict[str, Any]:
    """The parameters of a request that its model takes, except those that are null.

    Raises:
        BadRequest: It has one that the model does not take, with a value that would change the answer.
    """
    found: dict[str, Any] = {}
    for name, neutral in PARAMETERS.items():
        value = getattr(request, name, None)
        if value is None:
            continue
        if name in takes:
            found[name] = value
        elif value not in neutral:
            only = " or ".join(map(repr, neutral)) or "null"
            raise BadRequest(f"{name} is {quoted(value)}, but only {only} is supported")
    return found
