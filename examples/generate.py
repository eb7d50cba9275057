"""A transformer over bytes, trained here, writes on from prompts, by keys and values in a paged cache."""

import asyncio
import sys

import numpy as np
from _transformer import DIM, HEADS, LAYERS, Transformer, codes, trained

import callboard as cb

NEW = 24
PROMPTS = (b"create_subprocess_", b"create_subprocess_s", b"run_", b"get_event_")


async def with_cache(model: Transformer, cache: cb.PagedKvCache) -> list[bytes]:
    """Each step computes the new bytes only, of all texts at once."""
    sequences, new = [], []

    async def step(sequences: list[cb.KvSequence], new: list[bytes]) -> list[bytes]:
        there = cache.step(sequences, [len(part) for part in new], new)

        def attend(layer: int, q: cb.GpuRef, k: cb.GpuRef, v: cb.GpuRef) -> cb.GpuRef:
            there.append(k, v, layer)
            return there.attend(q, layer, alibi_slopes=model.slopes).out

        said = await model.logits(model.gpu.put(codes(b"".join(new))), attend).get()
        return [bytes([byte]) for byte in said[np.cumsum([len(part) for part in new]) - 1].argmax(1)]

    for prompt in PROMPTS:
        sequences.append(cache.allocate(prompt))
        new += await step(sequences[-1:], [prompt[sequences[-1].shared :]])
    texts = [prompt + byte for prompt, byte in zip(PROMPTS, new, strict=True)]
    for _ in range(NEW - 1):
        new = await step(sequences, new)
        texts = [text + byte for text, byte in zip(texts, new, strict=True)]
    return texts


async def without(model: Transformer, text: bytes) -> bytes:
    """Each step computes all bytes again."""
    forward, slopes = model.gpu.attention.forward, model.slopes
    for _ in range(NEW):
        attend = lambda layer, q, k, v: forward(q, k, v, causal=True, alibi_slopes=slopes).out
        said = await model.logits(model.gpu.put(codes(text)), attend).get()
        text += bytes([said[-1].argmax()])
    return text


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        model = await trained(gpu)
        cache = gpu.attention.kv_cache(64, HEADS, DIM, block_size=8, dtype="f32", num_layers=LAYERS)
        texts = await with_cache(model, cache)
        assert texts == [await without(model, prompt) for prompt in PROMPTS]
    print(*texts, f"the same without a cache; {cache.stats.hits} pages were shared", sep="\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
