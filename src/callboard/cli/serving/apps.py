"""Selection of the served app: one of a module, one described by a TOML file, or the demo's."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from callboard.serve.app import App

__all__ = ["demo", "fetch_for_demo", "find", "find_app"]

T = TypeVar("T")


def demo(device: str, workers: int) -> App:
    """The demo's app. With several workers its model cannot be reloaded: a request would reach one of them.

    Raises:
        BackendUnavailable: The weights are not there, or a package of the extra ``demo`` is not installed.
    """
    from callboard.serve.bundled.demo import demo_app  # other apps need none of it

    return demo_app(device, control=workers == 1)


def fetch_for_demo(tell: Callable[[str], object]) -> None:
    """Fetch the weights of the demo's model, the first time; ``tell`` gets a line about it.

    Raises:
        BackendUnavailable: They cannot be fetched, or a package of the extra ``demo`` is not installed.
    """
    from callboard.serve.bundled.weights import fetched

    fetched(tell)


def find_app(where: str) -> App:
    """The app that ``module:name`` names, or that a TOML file describes.

    Raises:
        ValueError: There is no such module, or no app of that name in it; the file does not describe one.
        OSError: The file cannot be read.
    """
    if where.endswith(".toml"):
        from callboard.serve.bundled.appfile import app_of  # other apps need none of it

        return app_of(Path(where))
    return find(where, App, "an app", "app:server, or a TOML file", "callboard.serve.App")


def find(where: str, kind: type[T], what: str, example: str, known: str, also: tuple[type, ...] = ()) -> T:
    """What ``module:name`` names, in a module of the current folder.

    Args:
        where: As it was given.
        kind: Its class.
        what, example, known: The kind, an example, and its public name, for errors.
        also: Other classes that it may be of.

    Raises:
        ValueError: There is no such module, or nothing of that kind under the name in it.
    """
    module, _, name = where.partition(":")
    if not module or not name:
        raise ValueError(f"{where!r} does not name {what}; give MODULE:NAME, such as {example}")
    sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        raise ValueError(f"there is no module {module!r} here") from e
    classes: tuple[type, ...] = (kind, *also)
    if not isinstance(found, classes):
        is_what = f"has no {name!r}" if found is None else f"has a {type(found).__name__} as {name!r}"
        there = ", ".join(key for key, value in vars(sys.modules[module]).items() if isinstance(value, kind))
        raise ValueError(f"module {module} {is_what}; its {known}: {there or 'none'}")
    return cast(T, found)
