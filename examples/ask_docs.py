"""Questions about texts over OpenAI's API: MiniLM finds the passages, and its host is killed while clients ask."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from urllib.request import urlopen

import callboard as cb
from callboard.serve import App, add_answers, listening
from callboard.serve.bundled.asking import minilm_embedding
from callboard.serve.bundled.weights import model_folder

TEXTS = {
    "errors.md": "# Loss\n\nA lost context fails its arrays. The supervisor opens the next generation.",
    "generations.md": "# Generations\n\nA generation tells old handles from new ones: no stale pointer is used.",
    "batches.md": "# Batches\n\nA batch is formed when an executor is free. A lone request runs at once.",
}
QUESTIONS = {"Why does a generation exist?": "generations.md:3", "When does a batch start?": "batches.md:3"}


@asynccontextmanager
async def lifespan(app: App, name: str = "auto") -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        gpu = await stack.enter_async_context(cb.device(name, isolation="process"))
        embed = await stack.enter_async_context(minilm_embedding(gpu, model_folder()))
        docs = await stack.enter_async_context(cb.RagPipeline(embed))
        await docs.ingest(cb.Document(source, text) for source, text in TEXTS.items())
        add_answers(app, "docs", docs, device=gpu, top_k=2)
        yield


app = App(lifespan=lifespan)  # callboard serve ask_docs:app


def ask(url: str, question: str) -> str:
    body = {"model": "docs", "messages": [{"role": "user", "content": question}]}
    sent = urlopen(f"{url}/v1/chat/completions", json.dumps(body).encode(), timeout=60)
    return str(json.load(sent)["choices"][0]["message"]["content"])


async def main(name: str) -> None:
    served = App(lifespan=partial(lifespan, name=name))
    async with listening(served, port=0) as url:
        asking = [asyncio.to_thread(ask, url, f"{text} ({n})") for n in range(4) for text in QUESTIONS]
        answers = asyncio.gather(*asking)
        gpu: Any = served.models["docs"].device
        os.kill(gpu.health().host_pid, 9)  # SIGKILL
        for text, place in zip(await answers, list(QUESTIONS.values()) * 4, strict=True):
            assert place in text, text
            print(text)
        print(f"8 answers, {gpu.health().restarts} context lost meanwhile")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
