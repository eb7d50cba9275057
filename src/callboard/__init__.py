"""callboard: typed, supervised actors for accelerator libraries, and array refs that detect a lost context.

::

    import asyncio, numpy as np, callboard as cb


    async def main() -> None:
        async with cb.device("auto") as gpu:
            a = gpu.put(np.random.rand(512, 512).astype("f4"))
            print(await gpu.blas.gemm(a, a).get())


    asyncio.run(main())

Importing this package has no side effects and loads no vendor package; names are loaded on first use. ``__init__.pyi``
lists the public names, both for type checkers and for this file.
"""

import sys
import types
from typing import Any

from callboard.events.exports import load, where


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = sorted([*where(__name__), "__version__"])
    elif name == "__version__":
        value = _version()
    elif name not in where(__name__):
        from callboard.core.ref.suggestions import unknown_name

        told = f"module 'callboard' has no attribute {name!r}"
        raise unknown_name(told, name, where(__name__), sys.modules[__name__])
    elif name == "kernel" or where(__name__)[name] == "callboard":  # modules; the first of them is also a decorator
        return load(f"callboard.{name}")
    else:
        value = getattr(load(where(__name__)[name]), name)
    globals()[name] = value
    return value


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("callboard")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


class _Package(types.ModuleType):
    """Keeps ``cb.device`` and ``cb.serve`` functions: importing the packages of these names would bind the modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("device", "serve") or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
