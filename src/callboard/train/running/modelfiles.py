"""``ModelFiles``: modules that are too large for a message to a host, which reads them from files instead."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from callboard.device.client.handle import Device
from callboard.device.protocol.residents.code import dumps, loads

__all__ = ["LARGE", "ModelFiles"]

LARGE = 16 << 20
"""Bytes of weights and buffers of a module from which on it travels in a file: half of what a message holds."""


class FromFile:
    """A function without arguments that gives the module of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Any:
        """Read the module.

        Raises:
            RuntimeError: The host is on another machine.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise RuntimeError(
                f"the model is in the file {self.path} of the trainer's machine, as it is too large for a message, and "
                "this host cannot read that; pass a function that gives the module"
            ) from None
        return loads(data)


class ModelFiles:
    """The files of one trainer, which :meth:`close` removes: a host that is replaced reads them again."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[int, FromFile] = {}  # by the identity of the module

    def write(self, models: Iterable[Any], devices: Sequence[Device]) -> None:
        """Write the large modules among these once, if a device is in another process. Takes a while: not for a loop.

        Raises:
            OSError: There is no room.
        """
        if all(device.isolation != "process" for device in devices):
            return
        for model in models:
            if id(model) not in self._files and _bytes_of(model) > LARGE:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="callboard-model-")
                path = Path(self._folder.name) / str(len(self._files))
                path.write_bytes(dumps(model))
                self._files[id(model)] = FromFile(path)

    def of(self, model: Any) -> Any:
        """What a host is given in place of a module: a function that reads its file, if there is one."""
        return self._files.get(id(model), model)

    def close(self) -> None:
        """Remove the files."""
        folder, self._folder = self._folder, None
        self._files.clear()
        if folder is not None:
            folder.cleanup()


def _bytes_of(model: Any) -> int:
    """Bytes of a module's weights and buffers; 0 of a function."""
    if not hasattr(model, "named_parameters") or isinstance(model, type):
        return 0
    return sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
