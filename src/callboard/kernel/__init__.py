"""The compute libraries of a device: their messages and typed methods.

The package is callable: ``@cb.kernel(...)`` is the decorator :func:`callboard.kernel.nvrtc.kernel`. Otherwise a package
and a function could not both have the name ``callboard.kernel``.
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
