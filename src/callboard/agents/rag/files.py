"""The folder of a pipeline's documents: the passages as JSON, and the file of their vectors."""

import contextlib
import logging
import os
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from callboard.agents.index.cpu import CpuVectorIndex
from callboard.agents.rag.passages.documents import Passage

__all__ = ["Kept", "keep", "kept"]

NAME = "passages.json"
_log = logging.getLogger(__name__)


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the folder.

    Attributes:
        settings: Of the model and the chunking; passages of others are not usable.
        digests: Of the documents' texts, by source.
        passages: All passages.
        vectors: Name of the file of their vectors; None if there are none.
    """

    settings: dict[str, str]
    digests: dict[str, str]
    passages: list[Passage]
    vectors: str | None = None
    format: int = 1


def keep(folder: Path, content: Kept, vectors: CpuVectorIndex | None) -> None:
    """Write the folder. A reader finds the old content or the new one, also if this is interrupted."""
    folder.mkdir(parents=True, exist_ok=True)
    if vectors is not None and len(vectors):
        of = blake2b(msgspec.json.encode([content.settings, [each.id for each in content.passages]]), digest_size=16)
        content.vectors = f"vectors-{of.hexdigest()}.index"
        vectors.save(folder / content.vectors)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{NAME}.")
    try:
        with open(handle, "wb") as file:
            file.write(msgspec.json.encode(content))
        os.replace(name, folder / NAME)
    except BaseException:  # whatever it is, no part of a file stays
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    for other in folder.glob("vectors-*.index"):
        if other.name != content.vectors:
            with contextlib.suppress(OSError):  # a process that has it mapped, on some systems
                other.unlink()


def kept(folder: Path, settings: dict[str, str]) -> tuple[Kept, CpuVectorIndex | None] | None:
    """The content of a folder; None if there is none of these settings.

    Raises:
        ValueError: It is damaged.
    """
    try:
        content = msgspec.json.decode((folder / NAME).read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as e:
        raise ValueError(f"{folder / NAME} is damaged: {e}; remove the folder, and ingest the documents again") from e
    if content.format != 1 or content.settings != settings:
        differ = [
            f"{name} {content.settings.get(name)!r}, and the pipeline {settings.get(name)!r}"
            for name in sorted({*content.settings, *settings})
            if content.settings.get(name) != settings.get(name)
        ] or [f"format {content.format}, and this version reads format 1"]
        _log.warning("%s is not restored: it has %s; ingest the documents again", folder, "; ".join(differ))
        return None
    try:
        vectors = None if content.vectors is None else CpuVectorIndex.load(folder / Path(content.vectors).name)
    except FileNotFoundError as e:  # another process has just replaced it
        raise ValueError(f"{folder} lacks its file of vectors; ingest the documents again") from e
    if vectors is not None and any(each.id not in vectors for each in content.passages):
        raise ValueError(f"{folder} lacks vectors of some passages; ingest the documents again")
    return content, vectors


def settings_of(**values: Any) -> dict[str, str]:
    """Settings as a folder keeps them."""
    return {name: str(value) for name, value in values.items()}
