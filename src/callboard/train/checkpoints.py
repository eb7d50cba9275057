"""Checkpoints: a folder for each, complete or not there, with weights that other programs can read.

``step-00000042/model.safetensors`` has the model's weights by their names; ``trainer.pt`` has the optimizer's state and
the place in the data, for ``torch.load(..., weights_only=True)``; ``sums.json`` has the CRC-32 of both.
"""

import contextlib
import json
import os
import pickle
import re
import shutil
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard.train.running.sampling import Cursor
from callboard.train.states import State, pack_host, unpack

__all__ = ["latest", "read", "write", "write_dcp"]

NAME = re.compile(r"step-(\d{8,})")
FILES = "model.safetensors", "trainer.pt"
SUMS = "sums.json"
"""CRC-32 of each file."""
_writing = threading.Lock()  # one at a time, also when an earlier call was cancelled and its thread still writes


def write(folder: Path, state: State, cursor: Cursor, keep: int | None = None) -> Path:
    """Write a checkpoint into a folder; one that exists for this step is replaced.

    Args:
        folder: Made if it does not exist.
        state: On the host.
        cursor: The place in the data.
        keep: Of this one and those of earlier steps, so many are kept, once this one is complete.

    Returns:
        The checkpoint's own folder.

    Raises:
        OSError: It cannot be written (the disk is full, …); nothing of it is left, and older ones are as they were.
        TypeError: The state has an object that cannot be read again without running code of the file.
    """
    with _writing:
        place = _write(folder, state, cursor)
        if keep is not None:
            earlier = [old for old in _all(folder) if _step(old) < state.step]
            for old in earlier[: max(0, len(earlier) - keep + 1)]:
                shutil.rmtree(old, ignore_errors=True)
    return place


def _write(folder: Path, state: State, cursor: Cursor) -> Path:
    import torch
    from safetensors.torch import save_file

    model, optimizer, rates = unpack(state)
    place = folder / f"step-{state.step:08}"
    rest = {
        "optimizer": optimizer,
        "rates": rates,
        "step": state.step,
        "updates": state.updates,
        "epoch": cursor.epoch,
        "batch": cursor.batch,
        "order": torch.tensor(list(cursor.order), dtype=torch.uint8),
        "best": cursor.best,
        "waited": cursor.waited,
        "factor": cursor.factor,
        "others": {name: value for name, value in model.items() if not isinstance(value, torch.Tensor)},
    }
    tensors = {name: value.contiguous() for name, value in model.items() if isinstance(value, torch.Tensor)}
    with _complete(place) as partial:
        try:
            save_file(tensors, partial / "model.safetensors")
            torch.save(rest, partial / "trainer.pt")
            torch.load(partial / "trainer.pt", map_location="meta", weights_only=True)
            (partial / SUMS).write_text(json.dumps({name: _sum(partial / name) for name in FILES}))
        except OSError:
            raise
        except pickle.UnpicklingError as error:
            what = str(error).split("WeightsUnpickler error: ")[-1].split("\n")[0]
            raise TypeError(
                "the state of the model or its optimizer has an object that a checkpoint cannot hold; use tensors, "
                f"numbers, texts, lists and dicts in get_extra_state and in the optimizer: {what}"
            ) from error
        except Exception as error:  # both wrap what the system said
            raise OSError(f"the checkpoint cannot be written to {folder}: {error}") from error
    return place


def write_dcp(folder: Path, state: State) -> None:
    """Write a state as torch.distributed.checkpoint does, with the names of its ``get_state_dict``.

    Args:
        folder: The checkpoint's own; one that is there is replaced once this one is complete.
        state: On the host.

    Raises:
        OSError: It cannot be written; nothing of it is left.
    """
    with _writing, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is")  # one process writes
        from torch.distributed.checkpoint.state_dict_saver import save

        model, optimizer, _ = unpack(state)
        rules = optimizer if isinstance(optimizer, list) else [optimizer]
        whole = {"model": model, "optimizer": _by_name([rule for rule in rules if rule is not None])}
        with _complete(folder) as partial:
            try:
                save(whole, checkpoint_id=partial, no_dist=True)
            except Exception as error:  # it wraps what the system said
                raise OSError(f"the checkpoint cannot be written to {folder}: {error}") from error


def _by_name(rules: list[Any]) -> dict[str, Any]:
    """The state of one optimizer for all weights, by their names; groups of alike settings are one."""
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for rule in rules:
        names = rule["names"]
        state |= {names[at] if isinstance(at, int) else at: values for at, values in rule["state"].items()}
        for group in rule["param_groups"]:
            own, settings = [names[at] for at in group["params"]], {**group, "params": []}
            alike = next((one for one in groups if {**one, "params": []} == settings), None)
            if alike is None:
                groups.append({**group, "params": own})
            else:
                alike["params"] += own
    return {"state": state, "param_groups": groups}


@contextlib.contextmanager
def _complete(place: Path) -> Iterator[Path]:
    """A folder to write to, which becomes this one when all is written; nothing half written stays."""
    partial = place.with_name(f".{place.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        for path in [*partial.iterdir(), partial]:
            _sync(path)
        _replace(partial, place)
        _sync(place.parent)
    except BaseException:  # whatever ends it
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _replace(partial: Path, place: Path) -> None:
    """Move a checkpoint to its place; one that is there is removed after that, and stays if this fails."""
    former = place.with_name(f".{place.name}.former")
    if not place.exists():
        partial.rename(place)
        return
    shutil.rmtree(former, ignore_errors=True)
    place.rename(former)
    try:
        partial.rename(place)
    except BaseException:  # whatever ends it, the former one is back
        former.rename(place)
        raise
    if former.is_symlink():
        former.unlink()
    shutil.rmtree(former, ignore_errors=True)


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
        PermissionError: It may not be read.
        RuntimeError: It is damaged; the text names the latest of the earlier ones that is not.
    """
    if NAME.fullmatch(place.name) is None:
        found = latest(place)
        if found is None:
            raise FileNotFoundError(f"{place} has no checkpoint (a folder named step-00000042, for example)")
        place = found
    elif not place.is_dir():
        raise FileNotFoundError(f"there is no checkpoint {place}")
    try:
        return _read(place)
    except PermissionError:
        raise
    except Exception as error:  # torch and safetensors raise what their parsers meet, an OSError of seek among it
        first = str(error).split("\n")[0]
        intact = _intact_before(place)
        cure = f"resume from {intact}, which is intact" if intact else "no earlier one beside it is intact"
        raise RuntimeError(
            f"the checkpoint {place} cannot be read; it is damaged, or not of a trainer ({cure}): "
            f"{type(error).__name__}: {first}"
        ) from error


def _intact_before(place: Path) -> Path | None:
    """The latest checkpoint of an earlier step that can be read."""
    for earlier in reversed(_all(place.parent)):
        if _step(earlier) < _step(place):
            with contextlib.suppress(Exception):  # damaged, too
                _read(earlier)
                return earlier
    return None


def _read(place: Path) -> tuple[State, Cursor]:
    import torch
    from safetensors.torch import load_file

    sums = json.loads((place / SUMS).read_text()) if (place / SUMS).exists() else {}  # older ones have none
    for name, checksum in sums.items():
        if _sum(place / name) != checksum:
            raise ValueError(f"{name} has other bytes than were written; if you have changed it, remove {SUMS}")
    model: dict[str, Any] = load_file(place / "model.safetensors")
    rest = torch.load(place / "trainer.pt", map_location="cpu", weights_only=True)
    own = {**model, **rest["others"]}, rest["optimizer"], _rates(rest["rates"])
    numbers = ("step", "updates", "epoch", "batch", "waited")
    step, updates, epoch, batch, waited = (_number(rest[name], int) for name in numbers)
    factor = _number(rest["factor"], float)
    cursor = Cursor(epoch, batch, rest["order"].numpy().tobytes(), float(rest["best"]), waited, factor)
    return pack_host(own, step, updates), cursor


def _rates(given: Any) -> Any:
    """Step sizes: a number for each group of parameters, in a list for each optimizer if there are several."""
    return [_rates(each) for each in given] if isinstance(given, list) else _number(given, float)


def _number(given: Any, kind: type) -> Any:
    fits: bool = isinstance(given, (int, kind)) and not isinstance(given, bool)
    if not fits or not given >= 0:
        raise ValueError(f"{given!r:.80} is no number that is at least 0")
    return given


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()), key=_step)


def _step(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def _sum(path: Path) -> int:
    """CRC-32 of a file."""
    found = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
