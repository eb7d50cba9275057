"""The methods of ``dev.nvrtc`` that are written by hand."""

from callboard.core.mode import Mode
from callboard.kernel.api import Api

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Kernels of the user's own."""

    __slots__ = ()

    covers = frozenset({"launch"})
