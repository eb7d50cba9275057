"""The project's own pages as a model that chats: ``callboard serve callboard.serve.bundled.docs:app``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.serve.app import App
from callboard.serve.bundled.asking import documents, minilm_embedding, name_of, pipeline
from callboard.serve.bundled.weights import model_folder
from callboard.serve.generation.answers import add_answers

__all__ = ["app", "docs_app"]


def docs_app(folder: Path | None = None, *, name: str = "docs", device: str = "auto", **options: Any) -> App:
    """An app that answers questions about a folder of texts, by MiniLM and by words.

    Args:
        folder: The folder; None: callboard's own pages.
        name: Name of the model.
        device: Device of the encoder.
        options: Of :class:`callboard.RagPipeline`, such as ``generate``.
    """
    return App("callboard docs", lifespan=partial(_lifespan, folder=folder, name=name, device=device, options=options))


@asynccontextmanager
async def _lifespan(
    app: App, folder: Path | None, name: str, device: str, options: dict[str, Any]
) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(cb.device(device, isolation="process", max_restarts=None))
        cache = await stack.enter_async_context(minilm_embedding(opened, model_folder()))
        texts = await asyncio.to_thread(documents, folder)
        docs = await stack.enter_async_context(pipeline(texts, cache, name=name_of(folder), **options))
        add_answers(app, name, docs, device=opened)
        yield


app = docs_app()
