"""Keys and tokens: those that HTTP can carry, and files that hold one."""

from pathlib import Path

__all__ = ["checked_key", "read_token"]

LONGEST = 16 * 1024
"""Bytes of a file with a token at most; heads of requests are not much longer."""


def checked_key(what: str, key: str) -> str:
    """A key or token that HTTP can carry.

    Raises:
        ValueError: It is empty, or not visible ASCII; does not repeat it.
    """
    if not (key.isascii() and key.isprintable() and key.strip(" ") == key != ""):
        raise ValueError(f"{what} must be visible ASCII, as HTTP carries it, without spaces or line ends around it")
    return key


def read_token(path: Path) -> str:
    """The token of a file: one line of visible ASCII, with or without its end and a byte order mark.

    Raises:
        ValueError: The file holds anything else; says what, and not the token.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(LONGEST + 1)  # a device may have no end
    if len(content) > LONGEST:
        raise ValueError(f"{path} has more than {LONGEST} bytes: it must hold the token alone")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise ValueError(f"{path} is not UTF-8 text: write the token as one line of ASCII") from e
    lines = text.strip().splitlines()
    if not lines:
        raise ValueError(f"{path} is empty: it must hold the token")
    if len(lines) > 1:
        raise ValueError(f"{path} has {len(lines)} lines: it must hold the token alone, in one line")
    if not (lines[0].isascii() and lines[0].isprintable()):
        raise ValueError(f"{path}: the token has a character that is not visible ASCII; HTTP carries none")
    return lines[0]
