"""The headers that every kernel may include without a path: ``#include <callboard/hopper.cuh>``."""

import re
from functools import cache
from importlib import resources

from callboard.kernel.nvrtc.wgmma import wgmma_header

__all__ = ["own_header", "with_own_headers"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]callboard/([\w.]+)[>"]', re.MULTILINE)


@cache
def own_header(name: str) -> str:
    """The text of ``callboard/<name>``.

    Raises:
        FileNotFoundError: There is no header of this name.
    """
    if name == "wgmma.cuh":
        return wgmma_header()
    return (resources.files("callboard.kernel.nvrtc") / "data" / name).read_text("utf-8")


def with_own_headers(text: str, headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The headers that a text is given, with those of callboard's that it includes."""
    given = {name for name, _ in headers}
    wanted = dict.fromkeys(name for part in (text, *(body for _, body in headers)) for name in _INCLUDE.findall(part))
    own = []
    for name in wanted:
        if f"callboard/{name}" not in given:
            try:
                own.append((f"callboard/{name}", own_header(name)))
            except FileNotFoundError:
                continue  # the compiler reports the missing file
    return (*headers, *own)
