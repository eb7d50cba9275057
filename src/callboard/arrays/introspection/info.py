"""The capabilities of a device's namespace: ``xp.__array_namespace_info__()``."""

from callboard.arrays.dtypes import DEFAULTS, KINDS, NAMES
from callboard.core.dtype import DType

__all__ = ["Info"]


class Info:
    """Answers the standard's questions.

    Args:
        device: Name of the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device

    def capabilities(self) -> dict[str, bool | int | None]:
        """Boolean masks are supported as indices.

        Shapes that depend on data are supported; such a result is awaited before its shape is read.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> str:
        """The device of this namespace."""
        return self._device

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of new arrays of Python's numbers, and of indices."""
        return dict(DEFAULTS)

    def devices(self) -> tuple[str, ...]:
        """The device of this namespace: each device has its own."""
        return (self._device,)

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes by name; those of one kind or of several.

        Raises:
            ValueError: There is no such kind.
        """
        kinds = (kind,) if isinstance(kind, str) else kind
        for one in kinds or ():
            if one not in KINDS:
                raise ValueError(f"kind {one!r}; there are {', '.join(KINDS)}")
        return {name: d for name, d in NAMES.items() if kinds is None or any(KINDS[one](d) for one in kinds)}
