"""The backends, and the device that a name means.

Backends are found by entry point (group ``callboard.backends``) and imported on first use; so are backends that wrap
others, like ``faulty+cpu`` (group ``callboard.wrappers``).
"""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from callboard.core import plugins
from callboard.core.backend import AccelBackend, DeviceInfo
from callboard.core.errors import BackendUnavailable

__all__ = ["backend", "kinds", "names", "register", "resolve"]

GROUP = "callboard.backends"
# The entry points of the distribution, for a source tree that is on the path without being installed.
BUILT_IN = {name: f"callboard.backends.{name}:backend" for name in ("cpu", "cuda", "torch")}
# Functions from a name, "<wrapper>+<backend>", to a backend that wraps another one.
WRAPPERS = "callboard.wrappers"

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_found: dict[str, AccelBackend] = {}
_warned = False

_SPEC = re.compile(r"(?P<name>[^:?]+(:[a-z]+)?)(:(?P<index>\d+))?(?P<options>\?.*)?")


def names() -> list[str]:
    """Names of all backends that :func:`backend` accepts, usable here or not, without wrappers."""
    with _lock:
        found = (name for name in _found if not _wrapper(name) and ":" not in name)  # no kinds
        return sorted({*BUILT_IN, *plugins.targets(GROUP), *found})


def kinds() -> list[str]:
    """:func:`names`, with the kinds of devices in place of a backend that has several."""
    found: list[str] = []
    for name in names():
        several: tuple[str, ...] = ()
        with contextlib.suppress(BackendUnavailable):  # told when the backend itself is asked for
            several = backend(name).kinds
        found += [f"{name}:{kind}" for kind in several] or [name]
    return found


def backend(name: str) -> AccelBackend:
    """The backend of this name, imported on first use.

    Args:
        name: ``"cpu"``, ``"cuda"``, an entry point's name, with a kind of devices where that backend has several
            (``"torch:cpu"``), or ``"faulty+cpu?seed=3"`` (:mod:`callboard.testing.faulty`).

    Raises:
        BackendUnavailable: There is no backend of this name or kind, or its module cannot be imported.
    """
    with _lock:
        found = _found.get(name)
        if found is None:
            found = _found[name] = _load(name)
        return found


def register(name: str, backend: AccelBackend) -> Callable[[], None]:
    """Make a backend known to this process under ``name``, before any entry point of that name.

    Returns:
        A function that undoes it.
    """
    with _lock:
        before = _found.get(name)
        _found[name] = backend

    def undo() -> None:
        with _lock:
            if before is None:
                _found.pop(name, None)
            else:
                _found[name] = before

    return undo


def resolve(spec: str) -> tuple[AccelBackend, DeviceInfo]:
    """The device that a name means.

    Args:
        spec: ``"auto"``: the first CUDA device that can be used, else the CPU, with one warning per process if an
            NVIDIA device is present and cannot be used. ``"cpu"``, ``"cuda"``: the first device of that backend,
            ``"cuda:1"`` its second; ``"torch:mps"`` and ``"torch:xpu:1"`` name a kind of devices of one backend. Or a
            UUID, ``"GPU-…"``.

    ``CALLBOARD_REQUIRE=cuda`` in the environment keeps ``"auto"`` from choosing the CPU.

    Raises:
        BackendUnavailable: There is no such backend or device, or it cannot be used; the text says why.
        TypeError: ``spec`` is not a str.
        ValueError: ``CALLBOARD_REQUIRE`` is something else.
    """
    if not isinstance(spec, str):
        raise TypeError(f"device {spec!r}: pass a name, 'auto', 'cpu', 'cuda', 'cuda:1' or a UUID")
    if spec == "auto":
        return _auto()
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise BackendUnavailable(f"device {spec!r}: use 'auto', 'cpu', 'cuda', 'cuda:1' or a UUID")
    name = match["name"] + (match["options"] or "")
    if match["name"].partition(":")[0] not in names() and not _wrapper(name):
        return _by_uuid(spec)
    found = backend(name)
    devices = found.devices()
    index = int(match["index"] or 0)
    for info in devices:
        if info.index == index:
            return found, info
    there = ", ".join(f"{match['name']}:{info.index}" for info in devices) or "none"
    raise BackendUnavailable(f"there is no device {spec!r}; there are: {there}")


def _auto() -> tuple[AccelBackend, DeviceInfo]:
    global _warned
    required = os.environ.get("CALLBOARD_REQUIRE", "")
    if required not in ("", "cuda"):
        raise ValueError(f"CALLBOARD_REQUIRE is {required!r}; use 'cuda', or unset it")
    try:
        return resolve("cuda")
    except BackendUnavailable as e:
        if required:
            raise BackendUnavailable(f"CALLBOARD_REQUIRE=cuda and no CUDA device can be used: {e}") from e
        with _lock:
            warn, _warned = not _warned and _nvidia_device_present(), True
        if warn:
            _log.warning("an NVIDIA device is present, but it cannot be used; 'auto' chooses the CPU: %s", e)
    return resolve("cpu")


def _by_uuid(uuid: str) -> tuple[AccelBackend, DeviceInfo]:
    reasons = []
    for name in kinds():
        family, _, kind = name.partition(":")
        if kind and not uuid.startswith(f"{family.upper()}-"):
            continue  # as those of a library with kinds begin; to look would load it
        try:
            found = backend(name)
            for info in found.devices():
                if info.uuid == uuid:
                    return found, info
        except BackendUnavailable as e:
            reasons.append(f"{name} cannot be used: {e}")
    why = "; ".join(reasons)
    raise BackendUnavailable(
        f"no device is called {uuid!r}; use 'auto', a backend ({', '.join(names())}), "
        "a backend and an index ('cuda:1'), or a UUID" + (f" ({why})" if why else "")
    )


def _wrapper(name: str) -> str | None:
    """The factory of the backend for a name ``"<wrapper>+<backend>"``; None for another name."""
    wrapper, plus, _ = name.partition("+")
    return plugins.targets(WRAPPERS).get(wrapper) if plus else None


def _load(name: str) -> AccelBackend:
    wrapper = _wrapper(name)
    if wrapper:
        wrapped: AccelBackend = plugins.load(wrapper)(name)
        return wrapped
    family, colon, kind = name.partition(":")
    if colon:
        return backend(family).of_kind(kind)
    loads = BUILT_IN.get(name) or plugins.targets(GROUP).get(name)
    if loads is None:
        raise BackendUnavailable(f"there is no backend {name!r}; there are {', '.join(names())}")
    try:
        found: AccelBackend = plugins.load(loads)
    except ImportError as e:
        raise BackendUnavailable(f"backend {name!r} cannot be imported: {e}") from e
    return found


def _nvidia_device_present() -> bool:
    try:
        return any(Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return Path("/dev/nvidia0").exists()
