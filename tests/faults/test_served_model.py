"""A torch model that is served, and one client whose requests lose its context while others go on.

On CUDA an index beyond the table of words is a device-side assertion; on a CPU, where torch checks it, the model kills
its host instead. No HTTP here: the machines with GPUs may lack the extra ``serve``.
"""

import asyncio
import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import lazily

import callboard as cb
from callboard.serve import App
from callboard.serve.bundled.demo import batched
from callboard.serve.bundled.minilm import MiniLM
from callboard.serve.errors import refusal_of

for _package in ("torch", "safetensors"):
    lazily.importorskip(_package, reason="for the extra demo")

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]
BOUND = 100
WORDS, WIDTH, LAYERS, LONGEST = 500, 64, 2, 64
POISON = [1, 2, WORDS + 1000]


class Fragile(MiniLM):
    """The model, with a host that dies of what would be an exception on a CPU."""

    def setup(self, ctx: cb.HostContext) -> None:
        super().setup(ctx)
        self._is_cuda = ctx.is_cuda

    def embed(self, texts: list[list[int]]) -> Any:
        if not self._is_cuda and any(max(text) >= WORDS for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of MiniLM's form with random weights."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("model")
    config = {
        "hidden_size": WIDTH,
        "layer_norm_eps": 1e-12,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH,
    }
    (path / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (LONGEST, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
        names = [*(f"attention.self.{each}" for each in ("query", "key", "value")), "attention.output.dense"]
        for name, shape in [
            *((name, (WIDTH, WIDTH)) for name in names),
            ("intermediate.dense", (2 * WIDTH, WIDTH)),
            ("output.dense", (WIDTH, 2 * WIDTH)),
        ]:
            shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[:1]}
    weights = {name: 0.2 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name in norms:
        weights |= {f"{name}.weight": np.ones(WIDTH, "f4"), f"{name}.bias": np.zeros(WIDTH, "f4")}
    save_file(weights, path / "model.safetensors")
    return path


async def vectors_of(folder: Path) -> dict[tuple[int, ...], Any]:
    """Vectors of each text by itself, on a CPU."""
    texts = [[i % WORDS for i in range(n, 2 * n)] for n in range(2, 40)]
    async with cb.device("cpu", isolation="process", standby=None) as device:  # torch leaves descriptors behind
        model = device.actor_of(cb.Props(MiniLM, str(folder), "torch"))
        return {tuple(text): (await model.call(MiniLM.embed, [text]))[0] for text in texts}


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
async def test_one_client_loses_contexts_and_the_others_go_on(device: str, folder: Path) -> None:
    app = App()
    expected = await vectors_of(folder)
    right, over = 0, asyncio.Event()
    async with asyncio.timeout(BOUND), cb.device(device, isolation="process", standby="warm") as dev:
        actor = await dev.actor_of(cb.Props(Fragile, str(folder), "torch"), wait=True)
        batcher = batched(functools.partial(actor.call, Fragile.embed), idempotent=False)
        quarantine: cb.Quarantine[Any] = cb.Quarantine(batcher)

        async def guarded(tokens: list[int]) -> Any:
            return await quarantine.run(str(tokens), lambda server: server.submit(tokens))

        async def good(at: int) -> None:
            nonlocal right
            while not over.is_set():
                text = list(expected)[at % len(expected)]
                found, _ = await model.embed([list(text)], timeout=None, tenant="good")
                np.testing.assert_allclose(found[0], expected[text], atol=2e-3)
                right += 1
                at += 1

        async def answers(more: int) -> None:
            enough = right + more
            while right < enough:  # noqa: ASYNC110 -- of the other tasks
                await asyncio.sleep(0)

        async def bad() -> None:
            await answers(100)
            for _ in range(5):
                with pytest.raises(cb.Quarantined) as caught:
                    await model.embed([POISON], timeout=None, tenant="bad")
                assert len(caught.value.generations) == 3
                assert refusal_of(caught.value).status == 422
            await answers(100)
            over.set()

        async with batcher:
            tenants = {"good": 1.0, "bad": 1.0}
            app.add_embeddings("m", cb.FairShareScheduler(guarded, tenants=tenants, max_in_flight=64), device=dev)
            async with app.running(), asyncio.TaskGroup() as group:
                model: Any = app.models["m"]
                for at in range(16):
                    group.create_task(good(7 * at))
                group.create_task(bad())
        health = dev.health()
    assert health.restarts == 3  # a query of death costs three contexts, however often it is sent
    stats = quarantine.stats()
    assert (stats.failed, stats.running, stats.waiting) == (0, 0, 0)
    assert stats.completed == right
