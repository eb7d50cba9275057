"""A real sentence encoder for two tenants, batched by length: its host is killed, and its weights are loaded anew."""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import callboard as cb
from callboard.serve import App, listening
from callboard.serve.bundled.minilm import MiniLM, engine_of, reference
from callboard.serve.bundled.weights import model_folder
from callboard.serve.bundled.wordpiece import Tokens


@asynccontextmanager
async def lifespan(app: App, name: str) -> AsyncIterator[None]:
    async with cb.device(name, isolation="process") as gpu:
        actors: dict[Any, cb.ResidentRef[MiniLM]] = {}  # unload stops them, else each load would leave weights behind

        async def load() -> Any:  # a server, in which texts of like lengths share batches
            actor = gpu.actor_of(cb.Props(MiniLM, str(model_folder()), engine_of(gpu.backend)))
            options: Any = {"bucket": lambda tokens: len(tokens) // 16, "cost": len, "max_batch_cost": 1024}
            actors[server := cb.DynamicBatchingServer(partial(actor.call, MiniLM.embed), **options)] = actor
            return server

        async def unload(server: Any) -> None:
            await asyncio.gather(server.stop(), actors.pop(server).stop_and_wait())

        model, tenants = cb.ModelVersion("1", load, unload=unload), {"free": 1.0, "paid": 3.0}  # shares of tokens
        app.add_embeddings("minilm", model, device=gpu, tenants=tenants, tokenize=Tokens(model_folder()))
        yield


def post(url: str, **body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"X-Tenant": "paid", "Authorization": "Bearer k"})
    return json.load(urllib.request.urlopen(request, timeout=30))


async def main(name: str) -> None:
    texts, vectors = reference()  # as sentence-transformers computes them
    app = App(lifespan=partial(lifespan, name=name), tenant=lambda h: h["x-tenant"], model_control=True, token="k")
    async with listening(app, port=0) as url:
        ask = partial(post, f"{url}/v1/embeddings", model="minilm", input=texts)
        asking = [asyncio.create_task(asyncio.to_thread(ask)) for _ in range(4)]
        await asyncio.to_thread(post, f"{url}/v2/repository/models/minilm/load")
        gpu: Any = app.models["minilm"].device
        assert len(gpu.health().residents) == 1  # the replaced actor has ended
        os.kill(gpu.health().host_pid, 9)  # SIGKILL
        for found in await asyncio.gather(*asking, asyncio.to_thread(ask)):
            assert abs(vectors - [each["embedding"] for each in found["data"]]).max() < 1e-4
        print(f"5 times {len(texts)} vectors, as expected; {gpu.health().restarts} context lost meanwhile")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
