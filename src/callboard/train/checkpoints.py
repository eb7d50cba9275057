"""Checkpoints: a folder for each, complete or not there, with weights that other programs can read.

``step-00000042/model.safetensors`` has the model's weights by their names; ``trainer.pt`` has the optimizer's state and
the place in the data, for ``torch.load(..., weights_only=True)``.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from callboard.train.sampling import Cursor
from callboard.train.states import State, pack, unpack

__all__ = ["latest", "read", "write"]

NAME = re.compile(r"step-(\d{8,})")


def write(folder: Path, state: State, cursor: Cursor, keep: int | None = None) -> Path:
    """Write a checkpoint into a folder; one that exists for this step is replaced.

    Args:
        folder: Made if it does not exist.
        state: On the host.
        cursor: The place in the data.
        keep: Older ones beyond this number are removed, once this one is complete.

    Returns:
        The checkpoint's own folder.

    Raises:
        OSError: It cannot be written (the disk is full, …); nothing of it is left, and older ones are as they were.
    """
    import torch
    from safetensors.torch import save_file

    model, optimizer, rates = unpack(state)
    place = folder / f"step-{state.step:08}"
    partial = folder / f".{place.name}.partial"
    rest = {
        "optimizer": optimizer,
        "rates": rates,
        "step": state.step,
        "updates": state.updates,
        "epoch": cursor.epoch,
        "batch": cursor.batch,
        "others": {name: value for name, value in model.items() if not isinstance(value, torch.Tensor)},
    }
    tensors = {name: value.contiguous() for name, value in model.items() if isinstance(value, torch.Tensor)}
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            save_file(tensors, partial / "model.safetensors")
            torch.save(rest, partial / "trainer.pt")
        except OSError:
            raise
        except Exception as error:  # both wrap what the system said
            raise OSError(f"the checkpoint cannot be written to {folder}: {error}") from error
        for path in [*partial.iterdir(), partial]:
            _sync(path)
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
        _sync(folder)
    except BaseException:  # nothing half written stays, whatever ends it
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if keep is not None:
        for old in _all(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    return place


def latest(folder: Path) -> Path | None:
    """The checkpoint of the highest step in a folder; None if there is none."""
    found = _all(folder)
    return found[-1] if found else None


def read(place: Path) -> tuple[State, Cursor]:
    """A checkpoint's state, on the host.

    Args:
        place: The checkpoint's own folder, or one with several, of which the latest counts.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    import torch
    from safetensors.torch import load_file

    if NAME.fullmatch(place.name) is None:
        found = latest(place)
        if found is None:
            raise FileNotFoundError(f"{place} has no checkpoint (a folder named step-00000042, for example)")
        place = found
    model: dict[str, Any] = load_file(place / "model.safetensors")
    rest = torch.load(place / "trainer.pt", map_location="cpu", weights_only=True)
    own = {**model, **rest["others"]}, rest["optimizer"], rest["rates"]
    state = pack(own, rest["step"], rest["updates"], lambda tensor: tensor.numpy(), torch.device("cpu"))
    return state, Cursor(rest["epoch"], rest["batch"])


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), key=lambda path: int(path.name[5:]))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
