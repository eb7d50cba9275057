"""Files that are made once, by whichever worker of pytest-xdist is first: the others wait for it."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["made_once"]


def made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """The file, which is made if it is not there; what fails leaves none.

    Args:
        path: Where it is kept, in a folder that exists; its name stands for its content.
        make: Writes it, under the same name in a folder that is removed.
    """
    if not path.exists():
        with _alone(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                    made = Path(folder) / path.name
                    make(made)
                    os.replace(made, path)
    return path


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time, until it ends in whatever way. On Windows several may make the same file."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
