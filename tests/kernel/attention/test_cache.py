"""``PagedKvCache`` on a device: sequences read their own tokens, whatever else is in its pages, and after a loss."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.faults.load import lost_and_recovered

import callboard as cb

HEADS, KV_HEADS, DIM, LAYERS, BLOCK = 4, 2, 8, 2, 4
VECTORS = np.random.default_rng(1).standard_normal((50, LAYERS, 3, HEADS, DIM))
"""Of each token: queries, keys and values of each layer."""


@pytest.fixture
def dev() -> Iterator[Any]:
    with cb.sync.device("cpu", isolation="thread", standby=None) as opened:
        yield opened


def cache_on(dev: Any, **settings: Any) -> Any:
    given = {"num_blocks": 12, "num_kv_heads": KV_HEADS, "head_dim": DIM, "block_size": BLOCK} | settings
    return dev.attention.kv_cache(**given, dtype="f64", num_layers=LAYERS)


def attended(dev: Any, cache: Any, sequences: list[Any], new: list[list[int]], flat: bool = True) -> Any:
    """One step of new tokens through all layers; the result of the last."""
    step = cache.step(sequences, [len(tokens) for tokens in new], new)
    q, k, v = VECTORS[[t for tokens in new for t in tokens]].transpose(2, 1, 0, 3, 4)
    found = None
    for layer in range(LAYERS):
        keys, values, queries = k[layer][:, :KV_HEADS], v[layer][:, :KV_HEADS], q[layer]
        if not flat:
            keys, values, queries = (x.reshape(len(sequences), -1, *x.shape[1:]) for x in (keys, values, queries))
        step.append(dev.put(np.ascontiguousarray(keys)), dev.put(np.ascontiguousarray(values)), layer)
        found = step.attend(dev.put(np.ascontiguousarray(queries)), layer)
    assert found is not None
    return found.out


def expected(tokens: list[int], last: int) -> Any:
    """Causal attention of the last tokens of a sequence, written out."""
    q, k, v = VECTORS[tokens].transpose(2, 1, 0, 3, 4)[:, LAYERS - 1]
    k, v = (np.repeat(x[:, :KV_HEADS], HEADS // KV_HEADS, 1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / DIM**0.5
    seen = np.where(np.tri(len(tokens), dtype=bool), scores, -np.inf)
    weights = np.exp(seen - seen.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)[-last:]


def test_chunks_of_prompts_and_then_token_by_token(dev: Any) -> None:
    cache = cache_on(dev)
    prompts = [[1, 2, 3, 4, 5], [7, 8]]
    sequences = [cache.allocate(prompt) for prompt in prompts]
    assert attended(dev, cache, sequences, [[1, 2, 3], [7]]).get().shape == (4, HEADS, DIM)
    out = attended(dev, cache, sequences, [[4, 5], [8]]).get()
    np.testing.assert_allclose(out, np.concatenate([expected(prompts[0], 2), expected(prompts[1], 1)]), atol=1e-12)
    for token in (9, 10, 11, 12):
        out = attended(dev, cache, sequences, [[token], [token + 20]], flat=False).get()[:, 0]
        prompts[0].append(token)
        prompts[1].append(token + 20)
        np.testing.assert_allclose(out, np.concatenate([expected(p, 1) for p in prompts]), atol=1e-12)
    assert [cache.length(s) for s in sequences] == [9, 6]


def test_a_prefix_is_computed_once_and_a_fork_goes_its_own_way(dev: Any) -> None:
    cache = cache_on(dev)
    prompt = list(range(10))
    first = cache.allocate(prompt)
    attended(dev, cache, [first], [prompt])
    second = cache.allocate([*prompt[:9], 30])
    assert second.shared == 8
    out = attended(dev, cache, [second], [[8, 30]]).get()
    np.testing.assert_allclose(out, expected([*range(9), 30], 2), atol=1e-12)
    fork = cache.fork(first)
    out = attended(dev, cache, [fork, first], [[40], [41]]).get()
    np.testing.assert_allclose(out[0], expected([*prompt, 40], 1)[0], atol=1e-12)
    np.testing.assert_allclose(out[1], expected([*prompt, 41], 1)[0], atol=1e-12)
    cache.truncate(fork, 9)
    np.testing.assert_allclose(attended(dev, cache, [fork], [[42]]).get(), expected([*range(9), 42], 1), atol=1e-12)
    assert cache.stats.copies >= 1
    for sequence in (first, second, fork):
        cache.free(sequence)
    assert (cache.stats.used, cache.stats.sequences) == (0, 0)
    assert cache.evict() > 0
    assert cache.stats.free == cache.stats.blocks


def test_a_full_cache_changes_nothing_and_a_cancelled_step_is_forgotten(dev: Any) -> None:
    cache = cache_on(dev, num_blocks=2)
    sequence = cache.allocate()
    attended(dev, cache, [sequence], [[1, 2, 3, 4, 5]])
    with pytest.raises(cb.OutOfMemory, match="1 pages of 4 tokens are needed and 0 of 2 are free"):
        cache.step([sequence], 4)
    step = cache.step([sequence], 2)
    with pytest.raises(cb.ShapeError, match="has a step that is not written"):
        cache.step([sequence])
    with pytest.raises(cb.ShapeError, match="layer 1 of this step is not written"):
        step.attend(dev.put(VECTORS[:2, 0, 0]), 1)
    step.cancel()
    with pytest.raises(cb.ShapeError, match="the step was cancelled"):
        step.append(dev.put(VECTORS[:2, 0, 1]), dev.put(VECTORS[:2, 0, 2]))
    out = attended(dev, cache, [sequence], [[6, 7]]).get()
    np.testing.assert_allclose(out, expected([1, 2, 3, 4, 5, 6, 7], 2), atol=1e-12)


def test_what_is_no_cache_is_refused(dev: Any) -> None:
    for settings, says in (({"num_blocks": 0}, "num_blocks is 0"), ({"block_size": -1}, "block_size is -1")):
        with pytest.raises(cb.ShapeError, match=says):
            cache_on(dev, **settings)
    with pytest.raises(cb.ShapeError, match="dtype is i32"):
        dev.attention.kv_cache(4, 1, 8, dtype="i32")
    cache = cache_on(dev)
    with pytest.raises(cb.ShapeError, match="there are 1 sequences, 2 counts"):
        cache.step([cache.allocate()], [1, 2])
    with pytest.raises(cb.ShapeError, match="layer is 2; the cache has 2"):
        cache.pages(2)


@pytest.mark.fault
async def test_no_page_of_a_lost_context_is_ever_read() -> None:
    """Sequences and steps of before are refused; the same prompt is computed anew, with nothing shared."""
    options: Any = {"isolation": "process", "standby": None, "max_restarts": None}
    async with cb.device("cpu", **options) as dev:
        cache = cache_on(dev)
        prompt = list(range(10))
        old = cache.allocate(prompt)
        await attended(dev, cache, [old], [prompt]).get()
        open_step = cache.step([old])
        pid = dev.health().host_pid
        assert pid is not None
        await lost_and_recovered(dev, lambda: os.kill(pid, signal.SIGKILL))
        with pytest.raises(cb.GpuRefStale):
            open_step.append(*(dev.put(VECTORS[:1, 0, i, :KV_HEADS].copy()) for i in (1, 2)))
        with pytest.raises(cb.GpuRefStale, match="KvSequence\\(0\\) is lost"):
            cache.step([old])
        new = cache.allocate(prompt)
        assert new.shared == 0
        with pytest.raises(cb.GpuRefStale, match="is lost"):  # although the new one has the same number
            cache.fork(old)
        cache.free(old)
        open_step.cancel()
        out = await attended(dev, cache, [new], [prompt]).get()
        np.testing.assert_allclose(out, expected(prompt, 10), atol=1e-12)
        assert cache.stats.sequences == 1
