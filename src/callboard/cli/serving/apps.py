"""Selection of the served app: one of a module, one described by a TOML file, or the demo's."""

from collections.abc import Callable
from pathlib import Path

from callboard.cli.parts.named import find
from callboard.serve.app import App

__all__ = ["demo", "fetch_for_demo", "find_app"]


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
