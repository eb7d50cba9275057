"""Which source an op's execution rests on, as a hash: a proof holds as long as that has not changed."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from callboard.core import registry
from callboard.core.library import Library
from callboard.core.op import Op, info_of

__all__ = ["all_ops", "op_sources", "ops_of", "source_hash"]

ROOT = Path(__file__).resolve().parents[4]


def ops_of(backend: str) -> dict[type[Op[Any, Any]], type[Library]]:
    """What a backend executes, and the library that does; imports no vendor package."""
    libraries = registry.backend(backend).libraries()
    return {op: library for library in libraries.values() for op in library.launch_table}


def op_sources(backend: str) -> dict[str, str]:
    """The hash of each op of a backend, by tag."""
    return {info_of(op).tag: source_hash(op, library) for op, library in ops_of(backend).items()}


def source_hash(op: type[Op[Any, Any]], library: type[Library]) -> str:
    """Hash of the file of the message, the files of the library, its prepare and its launch, and the launch itself."""
    launch = getattr(library, library.launch_table[op].method)
    parts: list[Any] = [op, library, launch]
    if op in library.prepare_table:
        parts.append(getattr(library, library.prepare_table[op].method))
    digest = hashlib.sha256()
    for path in sorted({Path(inspect.getfile(inspect.unwrap(part))) for part in parts}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(inspect.getsource(inspect.unwrap(launch)).encode())
    return digest.hexdigest()[:16]


def all_ops() -> list[type[Op[Any, Any]]]:
    """Every op of ours that some built-in backend executes, by tag."""
    found = {info_of(op).tag: op for backend in ("cpu", "cuda") for op in ops_of(backend)}
    return [found[tag] for tag in sorted(found)]
