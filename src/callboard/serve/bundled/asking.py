"""A pipeline over a folder of texts, with MiniLM; this project's own pages are such a folder."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

import callboard as cb
from callboard.core.backend.machine import cache_folder
from callboard.serve.bundled.demo import BATCH_TOKENS, MODEL, batched
from callboard.serve.bundled.minilm import MiniLM, engine_of
from callboard.serve.bundled.weights import SHA256
from callboard.serve.bundled.wordpiece import Tokens
from callboard.serve.tensors import Array

__all__ = ["Retrieval", "documents", "minilm_embedding", "name_of", "own_pages", "pipeline"]

Retrieval = Literal["hybrid", "vectors", "text"]
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "docs/guides/*.md", "docs/decisions/*.md")
"""The pages about the project, in its source tree and in the wheel."""
PART = 1 << 15
"""Characters of the documents that are embedded before progress is told."""
SAVED_EVERY = 5.0
"""Seconds between savings, while passages are embedded."""
TABLES = frozenset(("docs/coverage.md",))
"""Of these: pages of tables only."""


def own_pages() -> Path:
    """The folder of the project's pages: the source tree, or the copy in the wheel.

    Raises:
        BackendUnavailable: The package was installed without them.
    """
    tree, copied = Path(cb.__file__).parents[2], Path(__file__).with_name("pages")
    for folder in (copied, tree) if copied.is_dir() else (tree,):
        if (folder / "docs" / "guides").is_dir() and (folder / "ARCHITECTURE.md").is_file():
            return folder
    raise cb.BackendUnavailable("this installation has no copy of the project's pages; give a folder with --path")


def documents(folder: Path | None) -> list[cb.Document]:
    """The documents below a folder; None: the project's own pages."""
    if folder is not None:
        return cb.documents_in(folder)
    root = own_pages()
    names = [path.relative_to(root).as_posix() for pattern in PAGES for path in sorted(root.glob(pattern))]
    return [cb.Document(name, (root / name).read_text("utf-8")) for name in names if name not in TABLES]


def name_of(folder: Path | None) -> str:
    """The name of a folder's documents in the cache."""
    return "own pages" if folder is None else os.path.abspath(folder)


@asynccontextmanager
async def minilm_embedding(device: cb.Device, folder: Path) -> AsyncIterator[cb.EmbeddingCache]:
    """Vectors of texts by MiniLM on a device, in batches of like lengths. A lost context costs time only.

    Args:
        device: The device.
        folder: Folder that :func:`model_folder` returned.
    """
    tokens = await asyncio.to_thread(Tokens, folder)
    actor = await device.actor_of(cb.Props(MiniLM, str(folder), engine_of(device.backend)), wait=True)
    most = BATCH_TOKENS.get(device.backend, 1024)
    async with batched(partial(actor.call, MiniLM.embed), max_tokens=most) as server:

        async def embed(texts: list[str]) -> Array:
            return np.stack(await asyncio.gather(*(server.submit(tokens(text)) for text in texts)))

        yield cb.EmbeddingCache(embed, model=MODEL, revision=SHA256[:16])
    await actor.stop_and_wait()


@asynccontextmanager
async def pipeline(
    texts: Sequence[cb.Document],
    cache: cb.EmbeddingCache | None,
    *,
    name: str,
    retrieval: Retrieval = "hybrid",
    keep: bool = True,
    tell: Callable[[int], object] = lambda done: None,
    **options: Any,
) -> AsyncIterator[cb.RagPipeline]:
    """A pipeline with these documents; passages and vectors are kept in callboard's cache folder.

    Args:
        texts: All documents.
        cache: Makes the vectors; None: words only.
        name: Of the collection, such as its folder: each has a folder of its own in the cache.
        retrieval: By what passages are found.
        keep: False: nothing is read from the cache folder, and nothing is written.
        tell: Gets the number of documents that are ready, again and again.
        options: Of :class:`callboard.RagPipeline`.
    """
    place = hashlib.blake2b(f"{name}\0{cache is not None}".encode(), digest_size=8).hexdigest()
    folder = cache_folder() / "ask" / place
    async with AsyncExitStack() as stack:
        answers = await stack.enter_async_context(
            cb.RagPipeline(cache, words=retrieval != "vectors", **{"candidates": 30, **options})
        )
        if keep:
            await _restored(answers, folder)
        done, unsaved, saved = 0, False, time.monotonic()
        for part in _parts(texts):
            changed = await answers.ingest(part)
            done, unsaved = done + len(part), unsaved or changed.added > 0
            tell(done)
            if keep and unsaved and time.monotonic() - saved > SAVED_EVERY:  # an interrupted run is continued
                await asyncio.to_thread(_save, answers, folder)
                unsaved, saved = False, time.monotonic()
        changed = await answers.ingest(texts, complete=True)
        if keep and (unsaved or changed.removed):
            await asyncio.to_thread(_save, answers, folder)
        yield answers


async def _restored(answers: cb.RagPipeline, folder: Path) -> None:
    try:
        await answers.restore(folder)
    except (ValueError, OSError):  # damaged: it is a cache, and is written anew
        return


def _save(answers: cb.RagPipeline, folder: Path) -> None:
    with contextlib.suppress(OSError):  # a file system that cannot be written: the next run computes the vectors again
        answers.save(folder)


def _parts(texts: Sequence[cb.Document]) -> Iterator[list[cb.Document]]:
    """The documents in groups of some seconds' work."""
    part: list[cb.Document] = []
    for each in texts:
        part.append(each)
        if sum(len(one.text) for one in part) >= PART:
            yield part
            part = []
    yield part
