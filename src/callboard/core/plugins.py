"""Libraries, found by name: those of this package, and those of other distributions by entry point.

An entry point in the group ``callboard.libraries`` names the class of a library's methods (``image =
my_image.api:ImageApi``, behind ``device.image``); one in ``callboard.libraries.cpu``, or of another backend, names the
:class:`~callboard.core.library.Library` that executes its ops there (``image = my_image.cpu:CpuImage``).
"""

import functools
from pathlib import Path
from typing import Any

from callboard.events import exports

__all__ = ["GROUP", "api_class", "import_messages", "library_names", "load", "targets"]

GROUP = "callboard.libraries"
BUILT_IN = {
    "array": "callboard.kernel.array.api:ArrayApi",
    "attention": "callboard.kernel.attention.api:AttentionApi",
    "blas": "callboard.kernel.blas.api:BlasApi",
    "blas_lt": "callboard.kernel.blas_lt.api:BlasLtApi",
    "collective": "callboard.kernel.collective.api:CollectiveApi",
    "cub": "callboard.kernel.cub.api:CubApi",
    "cutlass": "callboard.kernel.cutlass.api:CutlassApi",
    "dnn": "callboard.kernel.dnn.api:DnnApi",
    "elementwise": "callboard.kernel.elementwise.api:ElementwiseApi",
    "engine": "callboard.kernel.engine.api:EngineApi",
    "event": "callboard.kernel.event.api:EventApi",
    "fft": "callboard.kernel.fft.api:FftApi",
    "ipc": "callboard.kernel.ipc.api:IpcApi",
    "managed": "callboard.kernel.managed.api:ManagedApi",
    "module": "callboard.kernel.module.api:ModuleApi",
    "nvrtc": "callboard.kernel.nvrtc.api:NvrtcApi",
    "rng": "callboard.kernel.rng.api:RngApi",
    "solver": "callboard.kernel.solver.api:SolverApi",
    "sparse": "callboard.kernel.sparse.api:SparseApi",
    "sparse_lt": "callboard.kernel.sparse_lt.api:SparseLtApi",
    "tensor": "callboard.kernel.tensor.api:TensorApi",
}


def library_names() -> list[str]:
    """Names of all libraries, as attributes of a device."""
    return sorted(BUILT_IN.keys() | targets(GROUP).keys())


def api_class(name: str) -> Any:
    """The class of a library's methods, imported on first use.

    Raises:
        KeyError: There is no library of this name.
        ImportError: Its module cannot be imported.
    """
    return load(BUILT_IN.get(name) or targets(GROUP)[name])


def import_messages(library: str) -> None:
    """Import the messages of a library, so that their tags are known; does nothing if there is no such library.

    Raises:
        ImportError: Its module cannot be imported.
    """
    if library in BUILT_IN or library == "memory":
        exports.load(f"callboard.kernel.{library}")
    elif library in targets(GROUP):
        api_class(library)


@functools.cache
def targets(group: str) -> dict[str, str]:
    """The entry points of a group in the installed distributions: names, and the ``module:attribute`` of each.

    Read on the first request for a name that is not built in: reading takes a tenth of a second with many installed
    distributions, which would delay the start of every host.
    """
    import importlib.metadata

    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)} or _declared(group)


def _declared(group: str) -> dict[str, str]:
    """Like :func:`targets`, for a source tree of this package that is on the path without being installed."""
    import tomllib

    try:
        project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return {}
    points = project.get("entry-points", {}).get(group, {}) if project.get("name") == "callboard" else {}
    return dict(points)


def load(target: str) -> Any:
    """The object that ``module:attribute`` names.

    Raises:
        ImportError: Its module cannot be imported.
        AttributeError: The module has no such attribute.
    """
    module, _, attributes = target.partition(":")
    found: Any = exports.load(module)
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute)
    return found
