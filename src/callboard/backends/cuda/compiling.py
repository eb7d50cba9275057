"""NVRTC: from CUDA C++ to a binary, with the compiler's names of its functions."""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.backend.announcing import announce
from callboard.core.errors import BackendUnavailable, LibraryError
from callboard.kernel.nvrtc.source import Compiled

__all__ = ["Compiled", "Job", "architecture", "checked", "compiled", "load_nvrtc"]

SPECIFIC = 90
"""From this compute capability on there are functions of one architecture only (``sm_90a``: wgmma)."""


class Job(msgspec.Struct, frozen=True, array_like=True):
    """A source, and everything its compiled form depends on.

    Attributes:
        title: Name of the source in messages, ``"heat.cu"``.
        text: CUDA C++.
        architecture: ``"sm_90a"``, or ``"compute_90"`` for PTX.
        form: ``"CUBIN"``, ``"PTX"`` or ``"LTOIR"``.
        options: NVRTC options.
        headers: Names and texts.
        include_paths: Folders.
        names: Name expressions to look up.
    """

    title: str
    text: bytes
    architecture: str
    form: str
    options: tuple[str, ...] = ("--std=c++17",)
    headers: tuple[tuple[str, str], ...] = ()
    include_paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def load_nvrtc() -> Any:
    """NVIDIA's binding of NVRTC; its library is found through ``cuda.pathfinder``.

    Raises:
        BackendUnavailable: It is not installed.
    """
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as e:  # cuda.bindings raises RuntimeError, pathfinder its own, the import ImportError
        raise BackendUnavailable(f'NVRTC cannot be loaded: {e}; pip install "callboard[cuda13]"') from e
    return nvrtc


def architecture(nvrtc: Any, capability: tuple[int, int], *, specific: bool = False) -> tuple[str, str]:
    """For what to compile, and to which form.

    Args:
        nvrtc: NVRTC, from :func:`load_nvrtc`.
        capability: Compute capability of the device.
        specific: Include the functions that only this architecture has (``sm_90a``).

    Raises:
        BackendUnavailable: The device is too old for NVRTC.
    """
    (supported,) = checked(nvrtc.nvrtcGetNumSupportedArchs(), "nvrtcGetNumSupportedArchs")
    (numbers,) = checked(nvrtc.nvrtcGetSupportedArchs(), "nvrtcGetSupportedArchs")
    wanted = capability[0] * 10 + capability[1]
    known = [n for n in list(numbers)[:supported] if n <= wanted]
    if not known:
        raise BackendUnavailable(
            f"NVRTC does not compile for compute capability {capability[0]}.{capability[1]}; it needs at least "
            f"{min(numbers) // 10}.{min(numbers) % 10} (install CUDA 12's packages for older GPUs)"
        )
    if wanted in known:
        return f"sm_{wanted}{'a' if specific and wanted >= SPECIFIC else ''}", "CUBIN"
    return f"compute_{max(known)}", "PTX"  # PTX, which the driver compiles for the newer device


def compiled(nvrtc: Any, job: Job, cache: KernelCache) -> Compiled:
    """Compile a job with NVRTC, at most once on this machine.

    Raises:
        LibraryError: NVRTC refuses it; the text has the compiler's log, with line numbers.
    """
    name = _name(nvrtc, job)
    found = None if name is None else cache.get(name)
    if found is not None:
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(found, type=Compiled)
    announce("kernels for this GPU with NVRTC", cache.folder)
    made = compile_now(nvrtc, job)
    if name is not None:
        cache.keep(name, msgspec.msgpack.encode(made))
    return made


def compile_now(nvrtc: Any, job: Job) -> Compiled:
    """Compile a job with NVRTC. Raises as :func:`compiled`."""
    texts, names = [text.encode() for _, text in job.headers], [name.encode() for name, _ in job.headers]
    created = nvrtc.nvrtcCreateProgram(job.text, job.title.encode(), len(texts), texts, names)
    (program,) = checked(created, "nvrtcCreateProgram")
    try:
        for expression in job.names:
            checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()), "nvrtcAddNameExpression")
        options = [f"--gpu-architecture={job.architecture}", *job.options]
        options += [f"--include-path={path}" for path in (*job.include_paths, *toolkit_headers())]
        options += ["-dlto", "--relocatable-device-code=true"] if job.form == "LTOIR" else []
        status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
        log = _bytes(nvrtc, program, "ProgramLog").rstrip(b"\0 \n").decode(errors="replace")
        if int(status):
            raise LibraryError(f"NVRTC refuses {job.title}: {log or status}", "nvrtc", int(status))
        lowered = {}
        for expression in job.names:
            (found,) = checked(nvrtc.nvrtcGetLoweredName(program, expression.encode()), "nvrtcGetLoweredName")
            lowered[expression] = found.decode()
        return Compiled(_bytes(nvrtc, program, job.form), job.form, lowered, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def checked(answer: tuple[Any, ...], call: str) -> tuple[Any, ...]:
    """Return the results of a binding call without its status.

    Raises:
        LibraryError: The status is not a success.
    """
    status, *values = answer
    if int(status):
        raise LibraryError(f"{call}: {status!r}", "nvrtc", int(status))
    return tuple(values)


def _bytes(nvrtc: Any, program: Any, what: str) -> bytes:
    (size,) = checked(getattr(nvrtc, f"nvrtcGet{what}Size")(program), f"nvrtcGet{what}Size")
    # NVRTC writes into it. One byte alone, which an empty log takes, would be the interpreter's own b" ", from which
    # Python makes the strings of modules that it compiles later.
    found = bytes(size + 2)
    checked(getattr(nvrtc, f"nvrtcGet{what}")(program, found), f"nvrtcGet{what}")
    return found[:size]


# -- the key -----------------------------------------------------------------------------------------------------------


def _name(nvrtc: Any, job: Job) -> str | None:
    """The cache file; None if its dependencies are unknown."""
    version = checked(nvrtc.nvrtcVersion(), "nvrtcVersion")
    files: list[tuple[str, bytes]] = []
    if job.include_paths or toolkit_headers():
        texts = [job.text, *(text.encode() for _, text in job.headers)]
        if any(_COMPUTED.search(text) for text in texts):
            return None
        known = {name for name, _ in job.headers}
        files = list(_included(texts, known, job.include_paths))
        if any(_COMPUTED.search(text) for _, text in files):
            return None
    toolkit = [(path, *_stamp(path)) for path in toolkit_headers()]
    key = hashlib.sha256(msgspec.msgpack.encode((job, list(version), files, toolkit))).hexdigest()[:40]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', job.title.removesuffix('.cu'))[:60]}-{key}.bin"


_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_COMPUTED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+[^<"\s]', re.MULTILINE)


def _included(texts: Iterable[bytes], known: set[str], folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The files below the user's folders that the texts may include, by name, each once."""
    seen = set(known)
    waiting: list[tuple[bytes, tuple[str, ...]]] = [(text, ()) for text in texts]
    while waiting:
        text, beside = waiting.pop()
        for name in (raw.decode(errors="replace") for raw in _INCLUDE.findall(text)):
            for folder in (*beside, *folders):
                path = Path(folder) / name
                if name in known or str(path) in seen:
                    break
                with contextlib.suppress(OSError):
                    found = path.read_bytes()
                    seen.add(str(path))
                    yield str(path), found
                    waiting.append((found, (str(path.parent),)))
                    break


@cache
def toolkit_headers() -> tuple[str, ...]:
    """The folders of the toolkit's own headers (``cuda_fp16.h``, ``cuda/std``), as far as they are installed."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    found = []
    for component in ("cudart", "cccl"):
        with contextlib.suppress(Exception):  # of whatever is not installed, in the words of each version
            folder = find_nvidia_header_directory(component)
            if folder:
                found.append(str(folder))
    return tuple(found)


def _stamp(folder: str) -> tuple[int, int]:
    """A stamp that changes when the toolkit's headers are replaced."""
    for name in ("cuda_fp16.h", "cuda/std/version", ""):
        with contextlib.suppress(OSError):
            stat = (Path(folder) / name).stat()
            return stat.st_mtime_ns, stat.st_size
    return 0, 0
