"""The demo's app: MiniLM on a device, batched by length, shared by two tenants, replaced while it runs."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.serve.app import App, EdgeLimits
from callboard.serve.bundled.minilm import MiniLM, engine_of, reference
from callboard.serve.bundled.weights import model_folder
from callboard.serve.bundled.wordpiece import Tokens
from callboard.serve.http.rights import Right
from callboard.serve.tensors import Array

__all__ = ["MODEL", "TENANTS", "Batcher", "batched", "demo_app", "encoder", "rights_of", "tenant_of"]

MODEL = "all-MiniLM-L6-v2"
TENANTS = {"free": 1.0, "paid": 3.0}
"""Weights. A client is the tenant that its API key names, and ``free`` with any other key."""
BUCKET = 16
"""Tokens: lengths are rounded up to multiples of this; where few batches take less time than little padding, as on a
GPU that a batch does not fill, texts of different ones share a batch."""
MAX_BATCH = 64
BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
"""Tokens of a batch at most, by backend: beyond that, a batch takes as long as its texts one by one."""
MAX_QUEUE = 4096
"""Texts that wait at most."""
CLOSE = 1e-4
"""The tolerance per number of a vector, compared with the reference."""

Batcher = cb.DynamicBatchingServer[list[int], Array]


def demo_app(device: str = "auto", *, control: bool = True, limits: EdgeLimits | None = None) -> App:
    """The app, which opens the device when it starts.

    Args:
        device: Name of the device, for :func:`callboard.device`.
        control: The tenant ``paid`` may load and unload the model, which several workers cannot offer.
        limits: See :class:`App`.

    Raises:
        BackendUnavailable: The weights are not there, or a package of the extra ``demo`` is not installed.
    """
    lifespan = functools.partial(_lifespan, name=device, folder=model_folder())
    return App(
        "callboard demo", lifespan=lifespan, tenant=tenant_of, rights=rights_of, model_control=control, limits=limits
    )


def tenant_of(headers: Mapping[str, str]) -> str:
    """The tenant whose name is the client's API key, which OpenAI's clients send as a bearer token."""
    key = headers.get("authorization", "").removeprefix("Bearer ")
    return key if key in TENANTS else "free"


def rights_of(headers: Mapping[str, str]) -> set[Right]:
    """Every client may ask and read; only one with the key ``paid`` may load and unload the model."""
    return {"infer", "read", "control"} if tenant_of(headers) == "paid" else {"infer", "read"}


@asynccontextmanager
async def _lifespan(app: App, name: str, folder: Path) -> AsyncIterator[None]:
    tokens = await asyncio.to_thread(Tokens, folder)
    # No bound on restarts: users of the demo kill the host many times.
    async with cb.device(name, isolation="process", max_restarts=None) as device:
        texts, vectors = reference()
        version = encoder(device, folder, golden=[(tokens(texts[i]), vectors[i]) for i in (0, -1)])
        app.add_embeddings(
            *(MODEL, version),
            device=device,
            tenants=TENANTS,
            tokenize=tokens,
            max_queue=MAX_QUEUE,
            vocabulary=tokens.vocabulary,
        )
        yield


def encoder(device: cb.Device, folder: Path, golden: Sequence[tuple[list[int], Array]] = ()) -> cb.ModelVersion:
    """The model as a loadable version: an actor in the device's host, behind a server that batches lists of tokens.

    Args:
        device: Device of the actor.
        folder: Folder that :func:`model_folder` returned.
        golden: Items and their vectors, which a loaded model must give to be accepted.
    """
    actors: dict[Batcher, cb.ResidentRef[MiniLM]] = {}

    async def load() -> Batcher:
        actor = await device.actor_of(cb.Props(MiniLM, str(folder), engine_of(device.backend)), wait=True)
        server = batched(functools.partial(actor.call, MiniLM.embed), max_tokens=BATCH_TOKENS.get(device.backend, 1024))
        actors[server] = actor
        return server

    async def unload(server: Batcher) -> None:
        await server.stop()
        await actors.pop(server).stop_and_wait()

    def close(found: Array, expected: Array) -> bool:
        return bool(np.allclose(found, expected, atol=CLOSE))

    return cb.ModelVersion("1", load, unload=unload, golden=golden, check=close if golden else None)


def batched(
    embed: Callable[[list[list[int]]], Awaitable[Array] | Array],
    *,
    max_tokens: int = 1024,
    idempotent: bool = True,
    join: bool = True,
) -> Batcher:
    """Batches of texts of like lengths for ``embed``, which gets lists of tokens.

    Args:
        embed: The function.
        max_tokens: Tokens of a batch at most, padding included.
        idempotent: Requests of a batch that a lost context interrupted are run again, once.
        join: Lengths are mixed where that is measured to be faster.
    """
    return cb.DynamicBatchingServer(
        embed,
        max_batch=MAX_BATCH,
        bucket=lambda tokens: -(-max(1, len(tokens)) // BUCKET) * BUCKET,
        batches=cb.BatchOptions(join_buckets=join),
        cost=len,
        max_batch_cost=max_tokens,
        max_queue=MAX_QUEUE,
        idempotent=idempotent,
        name=MODEL,
    )
