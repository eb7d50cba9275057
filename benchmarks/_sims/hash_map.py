"""Keys inserted and found in batches, beside dict and NumPy; on a GPU found there, beside CuPy's sorted search."""

from typing import Any

import numpy as np
from _harness import Bar, spread

import callboard as cb
from _sims.bench import Bench, Section, faster

PER = 10


def section(bench: Bench) -> Section:
    """A million keys on a CPU; on a GPU 134 million, in half of the slots."""
    n = bench.size(1_000_000, 1 << 27)
    keys = np.random.default_rng(0).permutation(n).astype("u8") * np.uint64(0x9E3779B97F4A7C15)
    values = np.arange(n)
    table = cb.GpuHashMapActor(bench.gpu, value="i8", capacity=n, snapshot_every=1 << 40)
    bench.done(table.start)

    async def ours() -> None:
        await table.clear()
        await table.insert_or_assign(keys, values)
        await table.find(keys)

    title, subjects = f"{n} keys, inserted and found", {"callboard": bench.wait(ours)}
    if bench.cuda:
        return _on_a_gpu(bench, title, table, keys, values, subjects)

    def by_dict() -> None:
        held = dict(zip(keys.tolist(), values.tolist(), strict=True))
        np.array([held[key] for key in keys.tolist()])

    def by_sorting() -> None:
        order = np.argsort(keys)
        values[order][np.searchsorted(keys[order], keys)]

    subjects |= {"dict": bench.call(by_dict), "NumPy": bench.call(by_sorting)}

    def bars(found: Any) -> list[Any]:
        return [faster(found, "dict", "callboard", 15), faster(found, "NumPy", "callboard", 5)]

    return Section(title, subjects, "callboard", bars, {})


def _on_a_gpu(bench: Bench, title: str, table: Any, keys: Any, values: Any, subjects: dict[str, Any]) -> Section:
    sent = bench.done(lambda: bench.gpu.put(keys))
    bench.done(table.clear)
    bench.done(lambda: table.insert_or_assign(keys, values))

    async def several() -> None:
        for _ in range(PER):
            found = await table.find_gpu(sent)
        await found.found

    subjects["found on the device"] = bench.wait(several, PER)
    found = bench.done(lambda: table.find_gpu(sent))
    right = bool((np.asarray(bench.done(found.values.get)) == values).all())
    order = np.argsort(keys)
    lined, ranked = keys[order], values[order]
    some = keys[: 1 << 20]  # all of them would take minutes
    subjects["NumPy, found"] = bench.call(lambda: ranked[np.searchsorted(lined, some)], per=len(some) / len(keys))
    if cupy := bench.peer("cupy"):
        a, b, c = (cupy.asarray(one) for one in (lined, ranked, keys))
        subjects["CuPy, found"] = bench.launch(cupy, lambda: b[cupy.searchsorted(a, c)], PER)
    stats = bench.done(table.stats)

    def bars(found: Any) -> list[Any]:
        name = "found on the device"
        rate = len(keys) / spread(found[name])["median"] / 1e9
        return [
            Bar("G finds a second", rate, 1.0, at_least=True),
            faster(found, "NumPy, found", name, 50),
        ]

    facts = {"load": stats.load, "right": float(right)}
    return Section(title, subjects, "found on the device", bars, facts)
