"""Files of simulations: arrays as NumPy's ``.npz``, with a checked description of what they are."""

import contextlib
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from callboard.realtime.base.rule import HostArrays

__all__ = ["read", "write"]

FORMAT = 1
ABOUT = "__about__"


def write(path: Path, about: dict[str, Any], arrays: HostArrays) -> None:
    """Write a file, which replaces one of this name when it is complete."""
    sums = {name: zlib.crc32(np.ascontiguousarray(array).tobytes()) for name, array in arrays.items()}
    text = json.dumps({**about, "format": FORMAT, "sums": sums})
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            np.savez(file, **{ABOUT: np.frombuffer(text.encode(), "u1")}, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:  # whatever it is, no part of a file stays
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def read(path: Path, blueprint: str) -> tuple[dict[str, Any], HostArrays]:
    """The description and the arrays of a file.

    Raises:
        ValueError: It is no file of this blueprint, or it is damaged.
        FileNotFoundError: There is none.
    """
    wrong = f"{path} is not the file of a simulation; pass one that save() has written"
    try:
        with np.load(path, allow_pickle=False) as file:
            if ABOUT not in file.files:
                raise ValueError(wrong)
            arrays = {name: file[name] for name in file.files}
        about: dict[str, Any] = json.loads(arrays.pop(ABOUT).tobytes())
    except (EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); save the simulation again") from error
    except ValueError as error:
        raise ValueError(wrong) from error
    if about["format"] != FORMAT:
        raise ValueError(f"{path} has format {about['format']}, and this version reads {FORMAT}; update callboard")
    if about["blueprint"] != blueprint:
        raise ValueError(f"{path} is of {about['blueprint']}, not of {blueprint}")
    for name, checksum in about["sums"].items():
        if name not in arrays or zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes()) != checksum:
            raise ValueError(f"{path}: {name!r} is damaged; save the simulation again")
    return about, arrays
