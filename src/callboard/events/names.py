"""``check_name``: names of systems and servers, which metrics, traces, logs and views show."""

from typing import Final

__all__ = ["LONGEST", "check_name"]

LONGEST: Final = 256
"""Characters of a name at most: each of its series repeats it."""


def check_name(what: str, name: object) -> None:
    """Raise unless a name can be shown everywhere.

    Args:
        what: What has the name, such as ``"a system"``.
        name: The name.

    Raises:
        TypeError: It is not a str.
        ValueError: It is too long, or has half of a surrogate pair, which is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} is {name!r:.80}; pass a str")
    if len(name) > LONGEST:
        raise ValueError(
            f"the name of {what} has {len(name)} characters; use at most {LONGEST} characters, not {name[:30]!a}…"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the name of {what} is {name!a}, which has half of a surrogate pair and is no text: pass Unicode text, "
            "such as name.encode(errors='replace').decode()"
        ) from None
