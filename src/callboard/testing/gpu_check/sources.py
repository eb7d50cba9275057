"""Which source an op's execution rests on, as a hash: a proof holds as long as that has not changed.

It is more than the launch: all of the op's library, on both sides (``kernel/<library>`` and
``backends/<backend>/<library>``), what that imports of other libraries' messages and of its backend, the device code
that it loads from the backend's ``data``, and the envelope in which every op runs (``core``, ``device/context`` and the
backend's own device).
"""

import ast
import functools
import hashlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard.core import registry
from callboard.core.library import Library
from callboard.core.op import Op, info_of

__all__ = ["all_ops", "op_sources", "ops_of", "source_hash"]

ROOT = Path(__file__).resolve().parents[4]
SOURCE = Path(__file__).resolve().parents[2]
ENVELOPE = ("core", "device/context")
KERNEL = "callboard.kernel."
DEVICE_CODE = {".cu", ".cuh"}
"""What may include other files; the rest of ``data`` are numbers."""


def ops_of(backend: str) -> dict[type[Op[Any, Any]], type[Library]]:
    """What a backend executes, and the library that does; imports no vendor package."""
    libraries = registry.backend(backend).libraries()
    return {op: library for library in libraries.values() for op in library.launch_table}


def op_sources(backend: str) -> dict[str, str]:
    """The hash of each op of a backend, by tag."""
    return {info_of(op).tag: source_hash(op, library) for op, library in ops_of(backend).items()}


def source_hash(op: type[Op[Any, Any]], library: type[Library]) -> str:
    """Hash of everything that the execution of an op by a library rests on (see the module's docstring)."""
    return _hash(".".join(op.__module__.split(".")[:3]), library)


def all_ops() -> list[type[Op[Any, Any]]]:
    """Every op of ours that some built-in backend executes, by tag."""
    found = {info_of(op).tag: op for backend in ("cpu", "cuda") for op in ops_of(backend)}
    return [found[tag] for tag in sorted(found)]


@functools.cache
def _hash(messages: str, library: type[Library]) -> str:
    files = {path for folder in ENVELOPE for path in (SOURCE / folder).rglob("*.py")}
    name = library.__module__.split(".")
    if name[:2] == ["callboard", "backends"]:
        backend = SOURCE / "backends" / name[2]
        mine = _whole(messages) | _whole(".".join(name[:4])) | {backend / "device.py"}
        own = _closed(mine, (KERNEL, ".".join(name[:3]) + "."))
        files |= own | _data(own, backend / "data")
    else:
        files |= _closed(_whole(messages), (KERNEL,)) | {Path(inspect.getfile(library))}
    digest = hashlib.sha256()
    for path in sorted(files):
        known = path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path.name
        digest.update(f"{known}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _whole(module: str) -> set[Path]:
    """The file of a module, or all files of a package."""
    path = SOURCE.parent.joinpath(*module.split("."))
    if path.is_dir():
        return {p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    return {path.with_suffix(".py")}


def _closed(files: set[Path], packages: tuple[str, ...]) -> set[Path]:
    """With what these files import of the packages (names that end in a dot), and what that does."""
    done: set[Path] = set()
    while rest := files - done:
        for path in rest:
            done.add(path)
            if path.suffix == ".py":
                names = (n for n in _imports(ast.parse(path.read_text("utf-8"))) if n.startswith(packages))
                files = files | {found for n in names if (found := _module(n)) is not None}
    return done


def _module(name: str) -> Path | None:
    """The file of a module or package; None for a name within one."""
    path = SOURCE.parent.joinpath(*name.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _data(files: set[Path], folder: Path) -> set[Path]:
    """The files of a folder whose names are written in these sources, and what they include."""
    written = {
        node.value
        for path in files
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found: set[Path] = set()
    wanted = {path for path in folder.glob("*") if path.is_file() and written & {path.stem, path.name}}
    while rest := wanted - found:
        found |= rest
        text = [path.read_text("utf-8") for path in rest if path.suffix in DEVICE_CODE]
        included = (re.findall(r'^#include "(.+)"$', source, re.MULTILINE) for source in text)
        wanted |= {folder / name for names in included for name in names}
    return found
