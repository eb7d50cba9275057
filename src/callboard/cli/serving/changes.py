"""Changes of an app's files, for ``callboard serve --reload``."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["changes_of", "files_of"]

EVERY = 0.25
"""Seconds between polls."""


def files_of(where: str) -> Callable[[], Iterator[Path]]:
    """A function that lists the files of the app that ``module:name``, or a TOML file, names.

    They are the Python files of the module's package, or those beside the module and in the packages beside it; for a
    TOML file those beside it, and itself.
    """
    if where.endswith(".toml"):
        path = Path(where)
        return lambda: iter([path, *_python(path.resolve().parent)])
    top = where.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, ["", *sys.path])  # of the package on top: nothing is imported
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        return lambda: _python(Path.cwd())
    if spec.submodule_search_locations is not None:
        folders = [Path(each) for each in spec.submodule_search_locations]
        return lambda: (path for folder in folders for path in folder.rglob("*.py"))
    origin = Path(spec.origin or "")
    return lambda: _python(origin.resolve().parent)


def _python(folder: Path) -> Iterator[Path]:
    """Its Python files, and those of packages in it."""
    yield from folder.glob("*.py")
    for package in folder.glob("*/__init__.py"):
        yield from package.parent.rglob("*.py")


async def changes_of(files: Callable[[], Iterable[Path]]) -> AsyncIterator[Path]:
    """Yield a file when one of them was changed, added or removed."""
    before = await asyncio.to_thread(_times, files)
    while True:
        await asyncio.sleep(EVERY)
        now = await asyncio.to_thread(_times, files)
        changed = next((path for path in before.keys() | now.keys() if before.get(path) != now.get(path)), None)
        before = now
        if changed is not None:
            yield changed


def _times(files: Callable[[], Iterable[Path]]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in files():
        try:
            about = path.stat()
        except OSError:  # removed meanwhile
            continue
        found[path] = about.st_mtime_ns, about.st_size
    return found
