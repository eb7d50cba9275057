"""``Regions``: system shared memory that clients register, for tensors that do not travel in bodies.

Source: Triton's system shared memory extension of the Open Inference Protocol.
"""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from callboard.serve.errors import BadRequest, HttpError

__all__ = ["FOLDER", "Place", "Regions"]

FOLDER = "/dev/shm"
"""The folder of POSIX shared memory objects on Linux."""
MOST = 256
"""Regions that are registered at once."""


@dataclass(frozen=True)
class Place:
    """The place of a tensor: a number of bytes of a region, from an offset on."""

    region: str
    offset: int
    size: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> "Place | None":
        """The place that the parameters of a tensor name; None if they name none.

        Raises:
            BadRequest: They are no place.
        """
        region = parameters.get("shared_memory_region")
        if region is None:
            return None
        size, offset = parameters.get("shared_memory_byte_size"), parameters.get("shared_memory_offset", 0)
        if not isinstance(region, str) or not _is_count(size) or not _is_count(offset):
            raise BadRequest(
                "shared_memory_region must be a name, shared_memory_byte_size and shared_memory_offset integers of at "
                f"least 0, but they are {region!r}, {size!r} and {offset!r}"
            )
        return cls(region, offset, size)

    def parameters(self, size: int) -> dict[str, Any]:
        """Parameters of a response whose tensor is in this region."""
        return {
            "shared_memory_region": self.region,
            "shared_memory_byte_size": size,
            **({"shared_memory_offset": self.offset} if self.offset else {}),
        }


@dataclass(frozen=True)
class _Region:
    key: str
    offset: int
    size: int
    file: int


class Regions:
    """Shared memory under the names that clients registered.

    Bytes are copied by reads and writes of a file. A mapping would be one copy less, but a client that shortens its
    memory would end the process (SIGBUS).

    Args:
        prefix: Prefix that keys must have: clients may not use other shared memory of the same user.

    Raises:
        ValueError: It is empty, or not the beginning of a key.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = _name_of(prefix)
        self._regions: dict[str, _Region] = {}

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Open the shared memory with this key.

        Raises:
            BadRequest: The name is taken, the key is not allowed or does not exist, or the memory is too small.
            HttpError: This process has no descriptor left (503).
        """
        if name in self._regions:
            raise BadRequest(f"the shared memory region {name!r} is registered already")
        if len(self._regions) >= MOST:
            raise BadRequest(f"{MOST} shared memory regions are registered, which is the most")
        if not (_is_count(offset) and _is_count(size)) or not size:
            raise BadRequest(f"offset and byte_size are {offset!r} and {size!r}: give integers from 0 and 1 on")
        try:
            file_name = _name_of(key)
        except ValueError as e:
            raise BadRequest(str(e)) from None
        if not file_name.startswith(self.prefix):
            raise BadRequest(f"keys of shared memory begin with {self.prefix!r} here, and this one is {key!r}")
        try:
            file = os.open(f"{FOLDER}/{file_name}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE):
                raise HttpError(f"this server has no descriptor to open {key!r} with: try again later", 503) from None
            raise BadRequest(f"the shared memory {key!r} cannot be opened: {e.strerror}") from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or offset + size > found.st_size:
            os.close(file)
            raise BadRequest(f"the shared memory {key!r} has no {size} bytes from {offset} on")
        self._regions[name] = _Region(key, offset, size, file)

    def unregister(self, name: str | None = None) -> None:
        """Remove a region, or all of them; does nothing for an unknown one."""
        for each in [name] if name is not None else list(self._regions):
            region = self._regions.pop(each, None)
            if region is not None:
                os.close(region.file)

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        """The registered regions.

        Raises:
            HttpError: There is no region of this name: status 404.
        """
        if name is not None and name not in self._regions:
            raise HttpError(f"there is no shared memory region {name!r}", 404)
        return [
            {"name": each, "key": region.key, "offset": region.offset, "byte_size": region.size}
            for each, region in self._regions.items()
            if name in (None, each)
        ]

    def read(self, place: Place) -> memoryview:
        """A copy of the bytes at a place; writable.

        Raises:
            BadRequest: There is no such place, or its memory was shortened.
        """
        region = self._region(place)
        found = memoryview(bytearray(place.size))
        at = 0
        while at < place.size:
            count = os.preadv(region.file, [found[at:]], region.offset + place.offset + at)
            if not count:
                raise BadRequest(f"the shared memory {region.key!r} is shorter than it was when it was registered")
            at += count
        return found

    def write(self, place: Place, data: bytes | memoryview) -> None:
        """Put bytes at a place.

        Raises:
            BadRequest: There is no such place, it is too small, or there is no memory for it.
        """
        region = self._region(place)
        rest = memoryview(data)
        if len(rest) > place.size:
            raise BadRequest(f"{len(rest)} bytes do not fit into {place.size} bytes of region {place.region!r}")
        at = region.offset + place.offset
        try:
            while rest:
                count = os.pwrite(region.file, rest, at)
                at, rest = at + count, rest[count:]
        except OSError as e:
            raise BadRequest(f"the shared memory {region.key!r} cannot be written: {e.strerror}") from None

    def _region(self, place: Place) -> _Region:
        region = self._regions.get(place.region)
        if region is None:
            raise BadRequest(f"there is no shared memory region {place.region!r}: register it first")
        if place.offset + place.size > region.size:
            raise BadRequest(
                f"region {place.region!r} has {region.size} bytes: {place.size} from {place.offset} on are too many"
            )
        return region


def _name_of(key: Any) -> str:
    name = key.removeprefix("/") if isinstance(key, str) else ""
    if not name or name.startswith(".") or "/" in name or "\0" in name or len(name.encode("utf-8", "replace")) > 255:
        raise ValueError(f"{key!r} is no key of shared memory: a name of 255 bytes at most, without '/' inside")
    return name


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
