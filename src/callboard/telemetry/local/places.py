"""Where the sockets of observed applications are: a folder that only the user can enter, one socket for each system."""

import os
import re
import stat
import tempfile
from pathlib import Path

__all__ = ["folder", "made_folder", "socket_of", "sockets"]

NAME = re.compile(r"(\d+)-(\d+)\.sock")


def folder() -> Path:
    """The user's folder, which may not exist: below ``XDG_RUNTIME_DIR``, else below the folder for temporary files."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) / "callboard" if own else Path(tempfile.gettempdir()) / f"callboard-{os.getuid()}"


def made_folder() -> Path:
    """The folder, made if it is not there.

    Raises:
        PermissionError: There is something of this name that is another user's, or that others can enter.
        OSError: It cannot be made.
    """
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    check(place)
    return place


def check(place: Path) -> None:
    """Look whether a folder is the user's own.

    Raises:
        PermissionError: It is not, or others can enter it.
        FileNotFoundError: There is none.
    """
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            f"{place} is not a folder that only this user can enter; remove it, or set its mode to 0700"
        )


def socket_of(pid: int, number: int) -> Path:
    """The socket of an observed system: the process, and the system's number in it."""
    return folder() / f"{pid}-{number}.sock"


def sockets() -> list[Path]:
    """The sockets of living processes, by process and age; what dead ones have left is removed.

    Raises:
        PermissionError: The folder is not the user's own.
    """
    place = folder()
    try:
        check(place)
    except FileNotFoundError:
        return []
    living: list[tuple[int, int, Path]] = []
    for path in place.iterdir():
        if found := NAME.fullmatch(path.name):
            pid = int(found[1])
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)
            except PermissionError:
                continue  # the number belongs to another user's process now
            else:
                living.append((pid, int(found[2]), path))
    return [path for _, _, path in sorted(living)]
