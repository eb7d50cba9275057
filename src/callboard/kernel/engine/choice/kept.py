"""Choices of engines on disk, which all processes of a user share."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callboard.core.backend.machine import cache_folder

__all__ = ["folder", "keep", "kept", "key_of"]

MOST = 4096
"""Choices that are kept; the oldest give way."""


def folder() -> Path:
    """``$CALLBOARD_CACHE_DIR/engine``, else the user's cache folder."""
    return cache_folder() / "engine"


def key_of(data: bytes, **rest: Any) -> str:
    """The name of a choice: of the model, and of all else that its speed depends on."""
    digest = hashlib.blake2b(data, digest_size=24)
    digest.update(json.dumps(rest, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def kept(key: str) -> dict[str, float] | None:
    """Seconds of an execution by engine, as they were measured; None if there are none, or they are damaged."""
    try:
        found = json.loads((folder() / f"{key}.json").read_bytes()[:1000])
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and len(found) > 1
    right = right and all(isinstance(each, float) and 0 < each < 1e6 for each in found.values())
    return found if right else None


def keep(key: str, seconds: Mapping[str, float]) -> None:
    """Keep it; nothing if the folder cannot be written: the next process measures again."""
    path = folder() / f"{key}.json"
    partial = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(dict(seconds)), "utf-8")
        partial.replace(path)  # other processes read: whole or not at all
        files = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)
        for old in files[:-MOST]:
            old.unlink(missing_ok=True)
