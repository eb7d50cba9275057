"""``EmbeddingCache``: one call for what is missing, one for callers at the same time, bounds, ages, errors."""

import asyncio
import functools
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.actors.clock import ManualClock

DIM = 4
ENTRY = DIM * 4 + 256 + 16
"""Bytes of an entry with a digest."""


def vector(text: str) -> Any:
    return np.random.default_rng(list(text.encode())).standard_normal(DIM).astype("f4")


class Model:
    """An embedding function that notes its calls and can be held."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def embed(self, texts: list[str]) -> Any:
        self.calls.append(texts)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return np.stack([vector(text) for text in texts])


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def test_a_batch_computes_what_is_missing_in_one_call() -> None:
    model = Model()
    cache = cb.EmbeddingCache(model.embed)
    assert np.array_equal(await cache.get("a"), vector("a"))
    found = await cache.get_many(["b", "a", "c", "b"])
    assert np.array_equal(found, [vector(text) for text in "bacb"])
    assert model.calls == [["a"], ["b", "c"]]
    again = await cache.get_many(["c", "a"])
    again[:] = 0  # a copy of the caller's own
    assert np.array_equal(await cache.get("c"), vector("c"))
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced, stats.calls) == (4, 3, 1, 2)
    assert (stats.entries, stats.bytes, cache.dim, len(cache)) == (3, 3 * ENTRY, DIM, 3)
    assert stats.hit_ratio == 5 / 8
    assert (await cache.get_many([])).shape == (0, DIM)


async def test_a_plain_function_and_a_resident_like_partial() -> None:
    cache = cb.EmbeddingCache(lambda texts: [vector(text) for text in texts], dtype="f16", max_batch=2)
    found = await cache.get_many(list("abcde"))
    assert found.dtype == np.float16
    assert np.allclose(found, [vector(text) for text in "abcde"], atol=1e-2)
    assert cache.stats().calls == 3
    model = Model()
    assert np.array_equal(await cb.EmbeddingCache(functools.partial(model.embed)).get("x"), vector("x"))


async def test_the_result_may_be_a_ref() -> None:
    async with cb.device("cpu", isolation="thread") as gpu:
        cache = cb.EmbeddingCache(lambda texts: gpu.put(np.stack([vector(t) for t in texts])), executor="loop")
        assert np.array_equal(await cache.get("a"), vector("a"))


async def test_keys_differ_in_all_that_a_vector_depends_on() -> None:
    model = Model()
    cache = cb.EmbeddingCache(model.embed)
    await cache.get("ab")
    await cache.get("b", prefix="a")
    await cache.get("query: b")
    assert np.array_equal(await cache.get("b", prefix="query: "), vector("query: b"))
    assert cache.stats().misses == 4
    from callboard.agents.cache.keys import Keys

    of = {("m", "1", "f32"), ("m", "2", "f32"), ("m", "1", "f16"), ("m1", "", "f32"), ("", "m1", "f32")}
    for kind in ("digest", "full"):
        keys = {Keys(kind, *parts).of("t", prefix) for parts in of for prefix in ("", "p")}  # type: ignore[arg-type]
        assert len(keys) == 10
    assert len(Keys("digest", "m", "", "f32").of("t" * 1000, "")) == 16
    assert Keys("digest", "", "", "").of("\ud800", "") != Keys("digest", "", "", "").of("?", "")


async def test_callers_at_the_same_time_share_one_call() -> None:
    model = Model()
    model.gate.clear()
    cache = cb.EmbeddingCache(model.embed)
    alone = [asyncio.create_task(cache.get("a")) for _ in range(3)]
    await turns()
    batch = asyncio.create_task(cache.get_many(["a", "b"]))
    await turns()
    assert model.calls == [["a"], ["b"]]
    alone[0].cancel()  # the one that started it
    await turns()
    model.gate.set()
    assert np.array_equal(await batch, [vector("a"), vector("b")])
    assert np.array_equal(await alone[1], await alone[2])
    assert alone[0].cancelled()
    assert (cache.stats().coalesced, cache.stats().misses) == (3, 2)


async def test_a_call_without_callers_is_cancelled_and_the_next_one_is_new() -> None:
    model = Model()
    model.gate.clear()
    cache = cb.EmbeddingCache(model.embed)
    callers = [asyncio.create_task(cache.get("a")) for _ in range(2)]
    await turns()
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    later = asyncio.create_task(cache.get("a"))
    await turns()
    model.gate.set()
    assert np.array_equal(await later, vector("a"))
    assert (len(model.calls), cache.stats().failed) == (2, 1)


async def test_a_cancellation_inside_the_function_is_an_error_for_callers() -> None:
    async def embed(texts: list[str]) -> Any:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="embed was cancelled"):
        await cb.EmbeddingCache(embed).get("a")


async def test_an_error_is_each_callers_own() -> None:
    """One that is raised in several tasks would mix up their tracebacks and notes."""
    model = Model()
    model.error = ValueError("no model")
    cache = cb.EmbeddingCache(model.embed)
    found = await asyncio.gather(*(cache.get("a") for _ in range(3)), return_exceptions=True)
    assert len({id(error) for error in found}) == 3
    assert {repr(error) for error in found} == {"ValueError('no model')"}
    assert len(model.calls) == 1


async def test_texts_are_taken_at_the_call() -> None:
    cache, texts = cb.EmbeddingCache(Model().embed), ["a", "b"]
    waiting = cache.get_many(texts)
    texts[:] = ["c", "c"]
    assert np.array_equal(await waiting, [vector("a"), vector("b")])


async def test_errors_are_not_kept() -> None:
    model = Model()
    cache = cb.EmbeddingCache(model.embed)
    model.error = ValueError("no model")
    found = await asyncio.gather(cache.get("a"), cache.get("a"), cache.get_many(["a", "b"]), return_exceptions=True)
    assert [str(each) for each in found] == ["no model"] * 3
    model.error = None
    assert np.array_equal(await cache.get("a"), vector("a"))
    assert (cache.stats().failed, cache.stats().entries) == (2, 1)


@pytest.mark.parametrize(
    "result, says",
    [
        ([[1.0, np.nan]], "the result of embed: row 0 holds nan"),
        ([[1.0, 2.0, 3.0]], r"shape \[1, 3\]; expected \[rows, 2\]"),
        ([[1.0, 2.0]] * 2, "has 2 rows for 1 items"),
        ([["x", "y"]], "pass real numbers"),
        ([[1e30, 0.0]], "above 1e"),
    ],
)
async def test_a_bad_result_is_an_error_and_not_kept(result: Any, says: str) -> None:
    cache = cb.EmbeddingCache(lambda _: result, dim=2)
    for _ in range(2):
        with pytest.raises((ValueError, TypeError), match=says):
            await cache.get("a")
    assert (cache.stats().entries, cache.stats().failed) == (0, 2)


async def test_vectors_grow_old() -> None:
    model, clock = Model(), ManualClock()
    cache = cb.EmbeddingCache(model.embed, ttl=10, clock=clock)
    await cache.get("a")
    clock.advance(9)
    await cache.get_many(["a", "b"])
    clock.advance(1)
    await cache.get_many(["a", "b"])
    assert model.calls == [["a"], ["b"], ["a"]]
    assert cache.stats().expired == 1


async def test_the_least_recently_used_leaves() -> None:
    model = Model()
    cache = cb.EmbeddingCache(model.embed, max_bytes=2 * ENTRY)
    await cache.get_many(["a", "b"])
    await cache.get("a")
    await cache.get("c")
    assert (cache.stats().evicted, cache.stats().bytes) == (1, 2 * ENTRY)
    await cache.get_many(["a", "c"])
    assert len(model.calls) == 2
    await cache.get_many(list("defgh"))  # more than there is room for: all are computed, the last are kept
    await cache.get_many(["g", "h"])
    assert len(model.calls) == 3


async def test_a_scan_leaves_what_is_asked_for_often() -> None:
    kept = {}
    for policy in ("lru", "tinylfu"):
        model = Model()
        cache = cb.EmbeddingCache(model.embed, max_bytes=20 * ENTRY, policy=policy)  # type: ignore[arg-type]
        often = [f"often {n}" for n in range(10)]
        for _ in range(5):
            await cache.get_many(often)
        for n in range(200):
            await cache.get(f"once {n}")
        calls = len(model.calls)
        await cache.get_many(often)
        kept[policy] = len(model.calls) == calls
        assert cache.stats().entries == 20
    assert kept == {"lru": False, "tinylfu": True}


async def test_put_invalidate_clear() -> None:
    model = Model()
    cache = cb.EmbeddingCache(model.embed, keys="full")
    cache.put("a", [1, 2, 3, 4])
    assert (await cache.get("a")).tolist() == [1, 2, 3, 4]
    assert cache.invalidate("a")
    assert not cache.invalidate("a")
    model.gate.clear()
    waiting = asyncio.create_task(cache.get("a"))
    await turns()
    assert cache.invalidate("a")  # what is computed now may be of the text as it was
    model.gate.set()
    assert np.array_equal(await waiting, vector("a"))
    assert len(cache) == 0
    await cache.get("b")
    cache.clear()
    assert (len(cache), cache.stats().bytes) == (0, 0)


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"max_bytes": 100, "dim": 4}, "max_bytes is 100; one vector of 4 float32 takes 288"),
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"policy": "fifo"}, "policy is 'fifo'"),
        ({"keys": "hash"}, "keys is 'hash'"),
        ({"dtype": "i32"}, "dtype is i32"),
        ({"executor": "gpu"}, "executor is 'gpu'"),
        ({"dim": True}, "dim is True"),
    ],
)
def test_bad_settings(settings: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        cb.EmbeddingCache(lambda texts: texts, **settings)


async def test_bad_calls() -> None:
    cache = cb.EmbeddingCache(Model().embed, dim=4)
    with pytest.raises(TypeError, match="pass a list of texts"):
        await cache.get_many("abc")
    with pytest.raises(TypeError, match="a text is 3, of int"):
        await cache.get(3)  # type: ignore[arg-type]
    with pytest.raises(cb.ShapeError, match=r"vector has shape \[2\]; expected \[rows, 4\]"):
        cache.put("a", [1, 2])
    with pytest.raises(ValueError, match="max_bytes is 100"):  # known at the first vector only
        await cb.EmbeddingCache(Model().embed, max_bytes=100).get("a")
