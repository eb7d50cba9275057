"""Serving over HTTP: models under the Open Inference Protocol v2, and embeddings under OpenAI's API.

Answering requests requires the extra ``serve`` (Starlette and uvicorn); apps can be defined without it. Names are
loaded on first use; ``__init__.pyi`` lists them, both for type checkers and for this file.
"""

import sys
from typing import Any

from callboard.events.exports import load, where


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = sorted(where(__name__))
    elif name in where(__name__):
        value = getattr(load(where(__name__)[name]), name)
    else:
        from callboard.core.ref.suggestions import unknown_name

        told = f"module {__name__!r} has no attribute {name!r}"
        raise unknown_name(told, name, where(__name__), sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
