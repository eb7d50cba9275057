"""Extents that depend on data, and struct operands: over threads, processes, the loop, slow streams and the blocking
face.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from tests.device.sizes import (
    EVENTS,
    Divide,
    Doubled,
    EveryRef,
    Larger,
    Pack,
    PairsRef,
    SizesBackend,
    SizesLibrary,
    Unpack,
)
from tests.together import together

import callboard as cb
from callboard.core import registry
from callboard.core.op import OPS
from callboard.kernel.memory import Fill
from callboard.testing.faulty import FaultyBackend
from callboard.testing.session import LibrarySession

X = np.array([3, -1, 0, 4, -1, 5, -9, 2, 6], np.float32)
ABOVE = X[X > 0]


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    EVENTS.clear()
    SizesLibrary.sized.clear()
    undo = registry.register("sizes", SizesBackend())
    slow = registry.register("slow", FaultyBackend(SizesBackend(), seed=5, delay=0.003))
    yield
    for event in list(EVENTS.values()):
        event.set()
    slow()
    undo()


@pytest.fixture(params=["sizes", "slow"])
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device(request.param, isolation="thread", standby=None) as opened:
        yield opened
        for event in list(EVENTS.values()):
            event.set()


# -- the open form -----------------------------------------------------------------------------------------------------


async def test_extents_are_known_when_awaited_and_not_before(dev: cb.Device) -> None:
    ref = dev.ask(Larger(x=dev.put(X), how="go"))
    assert (ref.ndim, ref.dtype.name, repr(ref.layout)) == (1, "f32", "f32[<=9]")
    looks = [lambda: ref.shape, lambda: ref.size, lambda: ref.nbytes, lambda: len(ref), lambda: ref[1:], lambda: ref.T]
    for poll in [*looks, lambda: ref.reshape(-1), ref.token, lambda: dev.copy(ref), lambda: ref.strides]:
        with pytest.raises(cb.ShapeError, match="await it first"):
            poll()
    assert "f32[<=9]" in repr(ref)
    EVENTS["go"].set()
    assert await ref is ref
    assert (ref.shape, ref.size, ref.nbytes, len(ref)) == ((5,), 5, 20, 5)
    np.testing.assert_array_equal(await ref.get(), ABOVE)
    np.testing.assert_array_equal(await ref[1:3].get(), ABOVE[1:3])
    np.testing.assert_array_equal(await dev.copy(ref).get(), ABOVE)


async def test_values_can_be_asked_for_before_the_extents_are_known(dev: cb.Device) -> None:
    x = dev.put(X)
    reply = dev.ask(Larger(x=x, how="go")).get()
    dropped = dev.ask(Larger(x=x)).get()
    gc.collect()  # the reply alone holds the array
    assert not reply.done()
    dev.fill(x, 100)
    del dropped
    EVENTS["go"].set()
    np.testing.assert_array_equal(await reply, ABOVE)
    out = np.zeros(9, "f4")
    refs = [dev.ask(Larger(x=dev.put(X))) for _ in range(3)]
    replies = [refs[0].get(out[:5]), refs[1].get(out[:4]), refs[2].get()]
    refs[2].free()
    assert (await replies[0]).base is out
    np.testing.assert_array_equal(out[:5], ABOVE)
    with pytest.raises(cb.ShapeError, match=r"get: out is float32\[4\], the array is f32\[5\]"):
        await replies[1]
    with pytest.raises(cb.GpuRefStale, match="freed"):
        await replies[2]
    late = dev.ask(Larger(x=dev.put(X)))
    found = await asyncio.to_thread(lambda: late.get().result(60))
    np.testing.assert_array_equal(found, ABOVE)


async def test_an_operand_without_extents_is_refused_by_name_with_the_cure(dev: cb.Device) -> None:
    ref = dev.ask(Larger(x=dev.put(X)))
    with pytest.raises(cb.ShapeError, match=r"memory\.copy: src is f32\[<=9\].*await it first.*out=, count="):
        dev.copy(ref)
    with pytest.raises(cb.ShapeError, match=r"sizes\.unpack: a\.values is f32\[<=9\]"):
        dev.ask(Unpack(a=EveryRef(values=ref, step=1, length=9)))
    await ref
    np.testing.assert_array_equal(
        await dev.ask(Unpack(a=EveryRef(values=ref, step=2, length=9))).get(), [3, 0, 4, 0, 5, 0, 2, 0, 6]
    )


async def test_many_calls_of_one_plan_do_not_mix(dev: cb.Device) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(50).astype(np.float32) for _ in range(30)]
    refs = [dev.ask(Larger(x=dev.put(a), limit=0.1 * i)) for i, a in enumerate(arrays)]
    for i, (ref, a) in enumerate(zip(refs, arrays, strict=True)):
        np.testing.assert_array_equal(await (await ref).get(), a[a > np.float32(0.1 * i)])
    plans = (await dev.stats()).plans["sizes"]
    assert (plans.entries, plans.misses, plans.hits) == (1, 1, 29)


async def test_the_operands_are_there_when_they_are_measured(dev: cb.Device) -> None:
    """Producers on another stream, and writers that come later."""
    x = dev.put(X)
    for _ in range(20):
        x = dev.copy(x)
    ref = dev.ask(Larger(x=x, how="go"))
    dev.fill(x, 100)  # must not be seen by the size query, which has yet to begin
    empty = dev.ask(Larger(x=dev.put(-X), limit=1e6))
    EVENTS["go"].set()
    np.testing.assert_array_equal(await (await ref).get(), ABOVE)
    assert (await empty).shape == (0,)
    assert (await empty.get()).shape == (0,)
    np.testing.assert_array_equal(await x.get(), np.full(9, 100))


async def test_several_outputs_and_a_closed_one_between(dev: cb.Device) -> None:
    above, rest, whole = dev.ask(Divide(x=dev.put(X)))
    assert whole.shape == (9,)
    copied = dev.copy(whole)  # a closed output pipelines
    await asyncio.gather(*(asyncio.ensure_future(_awaited(r)) for r in (above, rest)))
    assert (above.shape, rest.shape) == ((5,), (4, 2))
    np.testing.assert_array_equal(await above.get(), ABOVE)
    np.testing.assert_array_equal(await rest.get(), np.repeat(X[X <= 0][:, None], 2, 1))
    np.testing.assert_array_equal(await copied.get(), X)


async def _awaited(ref: Any) -> Any:
    return await ref


async def test_refs_that_nobody_holds_give_their_memory_back(dev: cb.Device) -> None:
    x = dev.put(X)
    await x
    before = (await dev.stats()).buffers
    for _ in range(20):
        dev.ask(Larger(x=x))
        dev.ask(Divide(x=x))
    await dev.drain()
    await dev.copy(x)  # releases ride in front of it
    assert (await dev.stats()).buffers <= before + 1


async def test_other_libraries_go_on_while_one_size_query(dev: cb.Device) -> None:
    x = dev.put(X)
    slow = dev.ask(Larger(x=x, how="go"))
    behind = dev.ask(Larger(x=x))
    np.testing.assert_array_equal(await dev.copy(x).get(), X)
    assert not slow.done()
    assert not behind.done()
    EVENTS["go"].set()
    await asyncio.gather(_awaited(slow), _awaited(behind))


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, says",
    [
        ("fail", "no"),
        ("crash", "RuntimeError: no"),
        ("lie", r"extents \(10,\), announced as f32\[<=9\]"),
        ("few", "0 shapes"),
    ],
)
async def test_a_failing_size_query_is_an_answer_and_the_library_goes_on(dev: cb.Device, how: str, says: str) -> None:
    x = dev.put(X)
    bad, good = dev.ask(Larger(x=x, how=how)), dev.ask(Larger(x=x))
    with pytest.raises(cb.LibraryError, match=says):
        await bad.get()
    with pytest.raises(cb.LibraryError, match=says):
        await bad
    with pytest.raises(cb.LibraryError, match=says):
        await bad.get()
    with pytest.raises(cb.ShapeError, match="await it first"):
        dev.copy(bad)
    np.testing.assert_array_equal(await (await good).get(), ABOVE)
    assert (await dev.stats()).restarts == 0


async def test_a_failed_producer_fails_it_without_a_size_query(dev: cb.Device) -> None:
    bad = await_later(dev)
    ref = dev.ask(Larger(x=bad, how="unseen"))
    with pytest.raises(cb.OutOfMemory):
        await ref
    assert "unseen" not in SizesLibrary.sized


def await_later(dev: cb.Device) -> Any:
    """A ref whose op fails: more memory than any machine has."""
    return dev.ask(Fill(out=dev.empty(1 << 46), fill_value=0.0))


async def test_no_memory_for_the_outputs() -> None:
    async with cb.device("sizes", isolation="thread", standby=None, memory_limit=3000) as dev:
        x = dev.put(np.arange(1, 257, dtype=np.float32))
        with pytest.raises(cb.OutOfMemory):
            await dev.ask(Divide(x=x))[1]
        few = await dev.ask(Larger(x=x, limit=250.0))
        np.testing.assert_array_equal(await few.get(), np.arange(251, 257))


async def test_memory_that_is_freed_in_time_is_used() -> None:
    async with cb.device("sizes", isolation="thread", standby=None, memory_limit=3500) as dev:
        x = dev.put(np.arange(1, 257, dtype=np.float32))
        held = [dev.empty(256), dev.empty(100)]
        ref = dev.ask(Larger(x=x))
        del held
        np.testing.assert_array_equal(await (await ref).get(), np.arange(1, 257))
        assert SizesLibrary.sized == [""], "what was sized still holds"


async def test_withdrawn_before_it_was_sent(dev: cb.Device) -> None:
    ref = dev.ask(Larger(x=dev.put(X)))
    assert ref.cancel()
    with pytest.raises(cb.AccelError, match="cancelled"):
        await ref


async def test_a_lost_context_fails_it() -> None:
    undo = registry.register("poisoned", FaultyBackend(SizesBackend(), poison_at=3))
    async with cb.device("poisoned", isolation="thread", standby=None) as dev:
        x = dev.put(X)
        refs = [dev.ask(Larger(x=x)) for _ in range(8)]
        for ref in reversed(refs[2:]):
            with pytest.raises((cb.ContextLost, cb.Unrecoverable), match="injected at op 3"):
                await ref
        with pytest.raises(cb.GpuRefStale, match="device shutting down"):
            refs[0].access()
    undo()


# -- the capacity form -------------------------------------------------------------------------------------------------


async def test_the_capacity_form_pipelines(dev: cb.Device) -> None:
    x = dev.put(X)
    out, count = dev.full(9, -1.0), dev.empty((), "i64")
    ref = dev.ask(Larger(x=x, out=out, count=count))
    assert ref.shape == (9,)
    copied, number = dev.copy(ref), dev.copy(count)
    np.testing.assert_array_equal(await copied.get(), [*ABOVE, -1, -1, -1, -1])
    assert int(await number.get()) == 5
    assert SizesLibrary.sized == []


async def test_a_count_has_no_place_in_the_open_form(dev: cb.Device) -> None:
    with pytest.raises(cb.ShapeError, match=r"count is i64\[\], and this call does not write it"):
        dev.ask(Larger(x=dev.put(X), count=dev.empty((), "i64")))


# -- struct operands ---------------------------------------------------------------------------------------------------


async def test_what_holds_its_thread_does_not_hold_the_admission(dev: cb.Device) -> None:
    """Extents are known as ever; the work is done before the launch, off the admitting thread."""
    x = dev.put(X)
    ref = dev.ask(Doubled(x=x, how="go"))
    again = dev.ask(Doubled(x=ref))
    assert again.shape == X.shape
    np.testing.assert_array_equal(await dev.copy(x).get(), X)  # other libraries go on
    assert not ref.done()
    EVENTS["go"].set()
    np.testing.assert_array_equal(await again.get(), 4 * X)
    assert SizesLibrary.sized == ["go", ""]
    np.testing.assert_array_equal(await dev.ask(Doubled(x=x, at_once=True)).get(), 2 * X)
    assert SizesLibrary.sized == ["go", ""], "it says of each op whether it has anything to do before"
    given = dev.zeros(X.size)
    await dev.ask(Doubled(x=x, out=given))
    np.testing.assert_array_equal(await given.get(), 2 * X)
    changed = dev.put(X)
    before = dev.ask(Doubled(x=changed))
    dev.fill(changed, 0)  # parked behind
    np.testing.assert_array_equal(await before.get(), 2 * X)
    failed = dev.ask(Doubled(x=x, how="fail"))
    after = dev.ask(Doubled(x=failed))
    for one in (failed, after):
        with pytest.raises(cb.LibraryError, match="no"):
            await one
    np.testing.assert_array_equal(await dev.ask(Doubled(x=x)).get(), 2 * X)


def test_a_library_session_does_beforehand_what_blocks() -> None:
    with LibrarySession(SizesBackend()) as session:
        got = session.get(session.submit(Doubled(x=session.put(X))))
        np.testing.assert_array_equal(session.get(session.submit(Doubled(x=session.put(X), at_once=True))), 2 * X)
    np.testing.assert_array_equal(got, 2 * X)


async def test_a_struct_operand_is_made_awaited_and_taken(dev: cb.Device) -> None:
    packed = dev.ask(Pack(x=dev.put(X)))
    assert isinstance(packed, PairsRef)
    assert packed.length == 9
    with pytest.raises(cb.ShapeError, match=r"sizes\.unpack: a\.values is f32\[<=9\]"):
        dev.ask(Unpack(a=packed))
    assert await packed is packed
    assert packed.values.shape == packed.places.shape == (8,)
    np.testing.assert_array_equal(await packed.places.get(), np.nonzero(X)[0])
    np.testing.assert_array_equal(await dev.ask(Unpack(a=packed, scale=2.0)).get(), 2 * X)
    np.testing.assert_array_equal(await dev.ask(Unpack(a=packed, scale=dev.put(np.float32(3)))).get(), 3 * X)
    every = EveryRef(values=packed.values, step=2, length=16)
    assert (await dev.ask(Unpack(a=every)).get())[::2].tolist() == X[X != 0].tolist()


async def test_a_given_struct_operand_is_written(dev: cb.Device) -> None:
    given = PairsRef(values=dev.zeros(8), places=dev.zeros(8, "i64"), length=9)
    again = dev.ask(Pack(x=dev.put(X), out=given))
    assert isinstance(again, PairsRef)
    np.testing.assert_array_equal(await dev.ask(Unpack(a=again)).get(), X)
    wrong = PairsRef(values=dev.zeros(8), places=dev.zeros(8, "i32"), length=9)
    with pytest.raises(cb.ShapeError, match=r"sizes\.pack: out\.places is i32\[8\], expected i64\[8\]"):
        dev.ask(Pack(x=dev.put(X), out=wrong))
    other = PairsRef(values=dev.zeros(8), places=dev.zeros(8, "i64"), length=7)
    with pytest.raises(cb.ShapeError, match=r"out is \('PairsRef', 7\), expected \('PairsRef', 9\)"):
        dev.ask(Pack(x=dev.put(X), out=other))


async def test_parts_are_named(dev: cb.Device) -> None:
    good = PairsRef(values=dev.zeros(3), places=dev.zeros(3, "i64"), length=9)
    x = dev.zeros(3)
    with pytest.raises(cb.ShapeError, match=r"out\.values .* shares memory with x"):
        dev.ask(Pack(x=x, out=PairsRef(values=x, places=good.places, length=3)))
    good.places.free()
    with pytest.raises(cb.GpuRefStale, match=r"sizes\.unpack: a\.places i64\[3\].*freed"):
        dev.ask(Unpack(a=good))


async def test_a_failed_part_fails_the_reader(dev: cb.Device) -> None:
    values = dev.ask(Larger(x=dev.put(X), out=await_later(dev)[:9]))
    with pytest.raises(cb.OutOfMemory):
        await dev.ask(Unpack(a=EveryRef(values=values, step=1, length=9)))


# -- where it runs -----------------------------------------------------------------------------------------------------


async def test_traces_see_the_launch() -> None:
    records: list[Any] = []
    async with cb.device("sizes", isolation="thread", standby=None) as dev:
        remove = await dev.trace(records.append)
        await dev.ask(Larger(x=dev.put(X)))
        await dev.stats()  # records come before its answer
        await remove()
    (record,) = [r for r in records if r.tag == "sizes.larger"]
    assert record.ok


def test_the_blocking_face() -> None:
    with cb.sync.device("sizes", isolation="thread", standby=None) as dev:
        np.testing.assert_array_equal(dev.ask(Larger(x=dev.put(X))).get(), ABOVE)
        ref = dev.ask(Larger(x=dev.put(X)))
        assert ref.shape == (5,)
        assert ref.result() is ref
        np.testing.assert_array_equal(ref.get(), ABOVE)
        packed = dev.ask(Pack(x=dev.put(X))).result(10)
        np.testing.assert_array_equal(dev.ask(Unpack(a=packed)).get(), X)


def test_from_other_threads() -> None:
    with cb.sync.device("sizes", isolation="thread", standby=None) as device:

        def work(i: int) -> Any:
            return device.ask(Larger(x=device.put(X + i))).result().get()

        for i, got in enumerate(together(work, [(i,) for i in range(6)])):
            np.testing.assert_array_equal(got, (X + i)[X + i > 0])


def test_a_library_session() -> None:
    with LibrarySession(SizesBackend()) as session:
        x = session.put(X)
        np.testing.assert_array_equal(session.get(session.submit(Larger(x=x))), ABOVE)
        above, rest, whole = session.submit(Divide(x=x))
        assert (above.shape, rest.shape, whole.shape) == ((5,), (4, 2), (9,))
        packed = session.submit(Pack(x=x))
        np.testing.assert_array_equal(session.get(session.submit(Unpack(a=packed))), X)
        again = session.submit(Pack(x=x, out=packed))
        assert again is packed


def test_the_messages_are_registered() -> None:
    assert {tag for tag in OPS if tag.startswith("sizes.")} == {
        f"sizes.{n}" for n in ("larger", "divide", "doubled", "pack", "unpack")
    }
