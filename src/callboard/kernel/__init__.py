"""The compute libraries of a device: their messages and typed methods.

Called, the package is the decorator ``@cb.kernel``: :func:`callboard.kernel.nvrtc.kernel`. A package and a function
cannot both be ``callboard.kernel`` otherwise.
"""

import sys
import types
from typing import Any


class _Decorator(types.ModuleType):
    """Lets ``@cb.kernel(...)`` be written although ``callboard.kernel`` is this package."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        from callboard.kernel.nvrtc.decorated import kernel

        return kernel(*args, **named)


sys.modules[__name__].__class__ = _Decorator
