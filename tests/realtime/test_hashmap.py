"""``GpuHashMapActor``: against a dict, and what the original did wrong."""

import asyncio
import importlib
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.realtime.hashmap import cuda, plain
from callboard.realtime.hashmap.config import HashMapConfig
from callboard.realtime.hashmap.keys import keys_of, values_of, words_of

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

KEY = st.integers(-6, 6) | st.sampled_from([-(2**63), 2**63 - 1])
BATCH = st.lists(st.tuples(KEY, st.integers(-100, 100)), max_size=8)
CALLS = st.lists(
    st.tuples(st.sampled_from(["insert", "insert_or_assign", "insert_and_add", "erase", "clear"]), BATCH), max_size=8
)


def on_a_dict(held: dict[int, int], call: str, batch: list[tuple[int, int]]) -> int | None:
    before = len(held)
    for key, value in batch:
        if call == "erase":
            held.pop(key, None)
        elif call == "insert":
            held.setdefault(key, value)
        elif call != "clear":
            held[key] = value + (held.get(key, 0) if call == "insert_and_add" else 0)
    if call == "clear":
        held.clear()
        return None
    return abs(len(held) - before)


@settings(max_examples=15, deadline=None)
@given(calls=CALLS, grow=st.booleans())
def test_it_is_a_dict(calls: list[tuple[str, list[tuple[int, int]]]], grow: bool) -> None:
    async def run() -> None:
        held: dict[int, int] = {}
        async with cb.device("cpu", isolation=None) as gpu:
            capacity = 2 if grow else 20
            async with cb.GpuHashMapActor(gpu, key="i8", value="i4", capacity=capacity, grow=grow) as table:
                for call, batch in calls:
                    keys, values = [key for key, _ in batch], [value for _, value in batch]
                    more: Any = {"clear": (), "erase": (keys,)}.get(call, (keys, values))
                    assert await getattr(table, call)(*more) == on_a_dict(held, call, batch)
                    found = await table.find([*keys, 99])
                    assert found.found.tolist() == [key in held for key in [*keys, 99]]
                    assert found.values.tolist() == [held.get(key, 0) for key in [*keys, 99]]
                all_keys, all_values = await table.retrieve_all()
                assert list(zip(all_keys.tolist(), all_values.tolist(), strict=True)) == sorted(held.items())
                assert (await table.stats()).size == len(held)

    asyncio.run(run())


async def test_a_missing_key_is_not_a_key_with_zeros() -> None:
    async with cb.device("cpu", isolation=None) as gpu, cb.GpuHashMapActor(gpu, value="c8", shape=(2,)) as table:
        await table.insert([5], [(0, 0)])
        await table.insert_and_add([6, 6], [(1j, 2), (1, 1)])
        values, found = await table.find([5, 6, 7])
        assert found.tolist() == [True, True, False]
        assert values.tolist() == [[0, 0], [1 + 1j, 3], [0, 0]]
        assert (await table.find([7], default=(1, 2))).values.tolist() == [[1, 2]]
        assert (await table.contains([7, 5])).tolist() == [False, True]
        there = await table.find_gpu(gpu.put(np.array([6, 8], "u8")))
        np.testing.assert_array_equal(await there.values.get(), [[1 + 1j, 3], [0, 0]])
        np.testing.assert_array_equal(await there.found.get(), [1, 0])


async def test_a_full_map_takes_what_fits_and_names_the_rest() -> None:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.GpuHashMapActor(gpu, key=3, value="i2", capacity=3, grow=False) as table,
    ):
        await table.insert([b"aaa"], 1)
        with pytest.raises(
            cb.HashMapFull, match="has 3 keys, and no room for 2 of this batch: b'ddd', b'eee'"
        ) as caught:
            await table.insert_or_assign([b"bbb", b"ccc", b"bbb", b"ddd", b"aaa", b"eee", b"ddd"], range(2, 9))
        assert [key.tobytes() for key in caught.value.keys] == [b"ddd", b"eee"]
        keys, values = await table.retrieve_all()
        assert ([key.tobytes() for key in keys], values.tolist()) == ([b"aaa", b"bbb", b"ccc"], [6, 4, 3])
        assert await table.insert_or_assign([b"aaa", b"bbb"], 0) == 0  # that they are there needs no room


async def test_slots_of_erased_keys_are_used_again() -> None:
    async with (
        cb.device("cpu", isolation=None) as gpu,
        cb.GpuHashMapActor(gpu, key="u4", value="bool", capacity=8, grow=False) as table,
    ):
        for n in range(30):
            assert await table.insert([n, n + 100], True) == 2
            assert await table.erase([n, n, n + 100]) == 2
        stats = await table.stats()
        assert (stats.size, stats.slots, stats.capacity) == (0, 16, 8)


async def test_operands_that_do_not_fit_change_nothing() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        with pytest.raises(ValueError, match="key is 0; it must be at least 1"):
            cb.GpuHashMapActor(gpu, key=0)
        with pytest.raises(ValueError, match="key is 'i2'; use u4, u8"):
            cb.GpuHashMapActor(gpu, key="i2")
        async with cb.GpuHashMapActor(gpu, key="u4", value="u1") as table:
            with pytest.raises(ValueError, match="keys: number 1 is -1; uint32 takes from 0 to"):
                await table.insert([1, -1], 0)
            with pytest.raises(ValueError, match="values: number 0 is 256"):
                await table.insert([1], [256])
            with pytest.raises(TypeError, match="keys has dtype float64; pass numbers of uint32"):
                await table.find([0.5])
            with pytest.raises(cb.ShapeError, match=r"values has shape \[2\] for 3 keys"):
                await table.insert([1, 2, 3], [1, 2])
            with pytest.raises(cb.ShapeError, match=r"keys has shape \[1, 1\]"):
                await table.erase([[1]])
            assert await table.insert([], []) == await table.erase([]) == 0
            assert (await table.find([])).values.shape == (0,)
            assert (await table.stats()).size == 0
        async with cb.GpuHashMapActor(gpu, key=2, value="f2") as table:
            with pytest.raises(cb.ShapeError, match=r"keys\[1\] has 3 bytes; keys of this map have 2"):
                await table.find([b"ab", b"abc"])
            with pytest.raises(TypeError, match="float16 cannot be added"):
                await table.insert_and_add([b"ab"], 1)


def test_floats_are_keys_by_their_value() -> None:
    config = HashMapConfig(key="f4", value="f4", shape=(), capacity=1, grow=True)
    words = words_of(np.array([0.0, -0.0, -1.5], "f4"), config)
    assert words[0] == words[1] != words[2]
    np.testing.assert_array_equal(keys_of(words, config), np.array([0, 0, -1.5], "f4"))
    with pytest.raises(ValueError, match=r"keys\[1\] is nan"):
        words_of([0.0, np.nan], config)


@pytest.mark.parametrize(
    "key, keys, says",
    [
        ("f4", [16777216, 16777217], "number 1 is 16777217, and 16777216.0 in float32; pass np.asarray"),
        ("f4", [np.inf, 1e300], "number 1 is 1e.300, and inf in float32; pass keys of a wider dtype"),
        ("f4", [0.5, 0.1], "number 1 is 0.1, and 0.10000000149"),
        ("f8", [1 << 63, (1 << 63) + 1], "number 1 is 9223372036854775809"),
        ("f8", np.array([-(1 << 53), -(1 << 53) - 1]), "number 1 is -9007199254740993"),
        ("f8", [0.5, (1 << 53) + 1], "number 1 is 9007199254740993"),
        ("f8", [10**400], "a number is beyond"),
        ("u8", [0, 1 << 64], "number 1 is 18446744073709551616"),
        ("u8", [(1 << 64) - 1, -1], "number 1 is -1"),
    ],
)
def test_a_key_that_the_dtype_has_not_is_no_other_key(key: str, keys: Any, says: str) -> None:
    config = HashMapConfig(key=key, value="f4", shape=(), capacity=1, grow=True)
    with pytest.raises(ValueError, match=f"keys: {says}"):
        words_of(keys, config)


def test_numbers_of_a_list_are_what_they_were() -> None:
    config = HashMapConfig(key="u8", value="u8", shape=(), capacity=1, grow=True)
    ends = [(1 << 64) - 1, 0]
    assert keys_of(words_of(ends, config), config).tolist() == values_of(ends, 2, config)[:, 0].tolist() == ends
    f8 = HashMapConfig(key="f8", value="f4", shape=(), capacity=1, grow=True)
    assert keys_of(words_of([1 << 63, 1e300, -np.inf], f8), f8).tolist() == [2.0**63, 1e300, -np.inf]
    least = np.array([-(1 << 31)], "i4")
    f4 = HashMapConfig(key="f4", value="f4", shape=(), capacity=1, grow=True)
    assert keys_of(words_of(least, f4), f4).tolist() == [-(2.0**31)]
    assert values_of([0.1, np.inf, 1 << 60], 3, f8)[:, 0].tolist() == [np.float32(0.1), np.inf, 2.0**60]
    for value, says in ((1e300, "1e.300, and inf"), ((1 << 24) + 1, "16777217, and 16777216.0")):
        with pytest.raises(ValueError, match=f"values: number 0 is {says}"):
            values_of(value, 1, f8)


ATOMICS = r"""
static int atomicCAS(int *at, int old, int now) { int was = *at; if (was == old) *at = now; return was; }
static int atomicAdd(int *at, int by) { int was = *at; *at += by; return was; }
#define T float
"""


class Texts:
    """The CUDA texts, called as :mod:`.plain` is."""

    def claim(self, query: Any, keys: Any, tag: Any, slot: Any, order: Any, how: int) -> None:
        launch(cuda.CLAIM, "claim", len(query), query, keys, tag, slot, order, *query.shape, len(tag), how)

    def apply(
        self, slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, *more: Any
    ) -> None:
        sort = np.argsort(slots, kind="stable")
        numbers = *query.shape, len(tag), values.shape[1], more[1]
        arrays = slots[sort], order[sort], query, given, keys, tag, values, more[0]
        launch(cuda.APPLY, "apply", len(query), *arrays, *numbers)

    def find(self, query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
        numbers = *query.shape, len(tag), values.shape[1]
        launch(cuda.FIND, "find", len(query), query, keys, tag, values, found, out, *numbers)

    def rehash(self, keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, *more: Any) -> None:
        numbers = *keys.shape, values.shape[1], len(new_tag)
        launch(cuda.REHASH, "rehash", len(tag), keys, tag, values, new_keys, new_tag, *more, *numbers)


def launch(text: str, name: str, size: int, *args: Any) -> None:
    run_text(ATOMICS + text, name, *args, blocks=-(-size // 8), threads=8)


def compiled() -> Any:
    pytest.importorskip("numba", reason="Numba compiles these: pip install 'callboard[realtime]'")
    return importlib.import_module("callboard.realtime.hashmap.compiled")


@pytest.mark.parametrize("make", [compiled, Texts])
def test_the_other_bodies_do_what_numpy_does(make: Callable[[], Any]) -> None:
    for words in (1, 2):
        draw = np.random.default_rng(words)
        query = draw.integers(0, 12, (20, words)).astype("u8")
        given = draw.normal(size=(20, 2)).astype("f4")
        outcomes = []
        for by in (plain, make()):
            keys, tag, values = np.zeros((64, words), "u8"), np.zeros(64, "i4"), np.zeros((64, 2), "f4")
            counts, slot, order = np.zeros(2, "i4"), np.zeros(20, "i4"), np.zeros(20, "i4")
            seen: list[Any] = []
            for how in (plain.KEEP, plain.ADD, plain.ERASE, plain.ASSIGN, plain.ADD):
                part = slice(0, 7) if how == plain.ERASE else slice(how, 20)
                some = np.ascontiguousarray(query[part])
                n = len(some)
                by.claim(some, keys, tag, slot[:n], order[:n], how)
                by.apply(slot[:n], order[:n], some, np.ascontiguousarray(given[part]), keys, tag, values, counts, how)
                found, out = np.zeros(20, "u1"), np.zeros((20, 2), "f4")
                by.find(query, keys, tag, values, found, out)
                assert set(tag.tolist()) <= {plain.EMPTY, plain.USED, plain.ERASED}
                seen += [found, out, counts.copy()]
            large = np.zeros((128, words), "u8"), np.zeros(128, "i4"), np.zeros((128, 2), "f4")
            by.rehash(keys, tag, values, *large, counts)
            by.find(query, *large, found, out)
            outcomes.append([*seen, found, out, counts])
        for one, other in zip(*outcomes, strict=True):
            np.testing.assert_array_equal(one, other)


def test_ranges_of_a_table_change_on_several_threads_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    table = compiled()
    monkeypatch.setattr(table, "GRAIN", 1)
    draw = np.random.default_rng(0)
    query = draw.integers(0, 9000, (12000, 1)).astype("u8")  # 8192 slots in two ranges, 6600 keys, of which many go on
    query[::97] = (1 << 64) - 1  # with 0, the two keys that are marks in a slot
    given = np.arange(12000.0)[:, None]
    outcomes = []
    for by in (plain, table):
        keys, tag, values = np.zeros((1 << 13, 1), "u8"), np.zeros(1 << 13, "i4"), np.zeros((1 << 13, 1))
        counts = np.zeros(2, "i4")
        for how, part in ((plain.ADD, query), (plain.ERASE, query[:500]), (plain.KEEP, query), (plain.ASSIGN, query)):
            n = len(part)
            slot, order = np.zeros((2, n), "i4")
            by.claim(part, keys, tag, slot, order, how)
            by.apply(slot, order, part, given[:n], keys, tag, values, counts, how)
            found, out = np.zeros(n, "u1"), np.zeros((n, 1))
            by.find(part, keys, tag, values, found, out)
            outcomes.append([found, out, counts.copy()])
    for one, other in zip(outcomes[:4], outcomes[4:], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


async def test_answers_that_were_lent_outlive_their_device() -> None:
    keys = np.arange(200_000, dtype="u8")
    async with cb.device("cpu", isolation="thread") as gpu, cb.GpuHashMapActor(gpu, value="i8") as table:
        await table.insert_or_assign(keys, keys.astype("i8"))
        values, found = await table.find(keys)
        await table.insert_or_assign(keys, 7)
        again = await table.find(keys)
        values[0] = 5  # the caller's own
        assert (await table.find(keys)).values[0] == 7
    assert found.all()
    assert (again.values == 7).all()
    np.testing.assert_array_equal(values[1:], keys[1:])


def test_keys_that_are_marks_in_a_slot_are_keys_too() -> None:
    table = compiled()
    ones = (1 << 64) - 1
    for words in (1, 2):
        outcomes = []
        for by in (plain, table):
            rows, tag, counts = np.zeros((64, words + 1), "u8"), np.zeros(64, "i4"), np.zeros(2, "i4")
            keys, values = rows[:, :words], rows[:, words:].view("i8")
            seen: list[Any] = []
            for how, some in ((plain.KEEP, [0, ones, 5]), (plain.ERASE, [0, 5]), (plain.ADD, [ones, 0, 0]),
                              (plain.ERASE, [ones, ones, 7]), (plain.ASSIGN, [3, 0, 3])):  # fmt: skip
                query, given = np.array([[one] * words for one in some], "u8"), np.arange(1, 4)[:, None]
                slot, order = np.zeros((2, len(some)), "i4")
                by.claim(query, keys, tag, slot, order, how)
                by.apply(slot, order, query, given[: len(some)], keys, tag, values, counts, how)
                wanted = np.array([[one] * words for one in (0, ones, 3, 5, 7)], "u8")
                found, out = np.zeros(5, "u1"), np.zeros((5, 1), "i8")
                by.find(wanted, keys, tag, values, found, out)
                seen += [found.tolist(), out.tolist(), counts.tolist()]
            large, more = np.zeros((128, words + 1), "u8"), np.zeros(128, "i4")
            by.rehash(keys, tag, values, large[:, :words], more, large[:, words:].view("i8"), counts)
            by.find(wanted, large[:, :words], more, large[:, words:].view("i8"), found, out)
            outcomes.append([*seen, found.tolist(), out.tolist(), counts.tolist()])
        assert outcomes[0] == outcomes[1]


async def test_searches_are_not_kept_and_clear_lets_go_of_what_was_before() -> None:
    async with cb.device("cpu", isolation="process") as gpu, cb.GpuHashMapActor(gpu, value="i4", capacity=4) as table:
        history = table._commands.history
        await table.insert([0, 1, 2], 5)
        for _ in range(3):
            await table.find([1, 9])
            await table.contains([2])
        assert len(history.commands) == 1
        await table.insert(range(3, 30), 6)  # a larger table
        await table.clear()
        assert history.commands == []
        await table.insert([(1 << 64) - 1, 0], [1, 2])
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert (await table.find([0, 1, (1 << 64) - 1])).values.tolist() == [2, 0, 1]
        stats = await table.stats()
        assert (stats.size, stats.slots, stats.losses, stats.lost_frames) == (2, 64, 1, 2)
