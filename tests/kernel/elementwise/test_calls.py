"""``cb.elementwise`` and ``cb.reduction`` as functions of arrays and numbers."""

from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.kernel.elementwise import Map, MapMany, Reduce


async def test_inputs_by_position_and_by_name(device: cb.Device) -> None:
    x, y = np.arange(4.0), np.array([-1.0, 2, -3, 4])
    at_x, at_y = device.put(x), device.put(y)
    f = cb.elementwise("z = alpha * x + max(y, 0)")
    assert (f.inputs, f.text) == (("alpha", "x", "y"), "z = alpha * x + max(y, 0)")
    want = 2 * x + np.maximum(y, 0)
    for found in (f(2, at_x, at_y), f(2.0, at_x, y=at_y), f(y=at_y, alpha=np.float64(2), x=at_x)):
        assert (await found.get() == want).all()
    assert (await device.elementwise.map(f.text, np.array(2.0), at_x, at_y).get() == want).all()


async def test_inputs_have_any_name_of_python_and_none_of_the_call(cpu_device: cb.Device) -> None:
    x = cpu_device.put(np.arange(4.0))
    f = cb.elementwise("\ufb01 = self + \u00b5", results=["\ufb01"])
    named = {"self": x, "\u00b5": 1.0}
    (found,) = f(**named)
    assert (await found.get()).tolist() == [1, 2, 3, 4]
    assert (await cpu_device.elementwise.map("self * expression", self=x, expression=2.0).get()).tolist() == [
        0,
        2,
        4,
        6,
    ]
    with pytest.raises(cb.ShapeError, match="axis is a setting of the call; rename"):
        cpu_device.elementwise.reduce("sum(x * axis)", x, 2.0)


async def test_a_reduction_ends_with_numbers_as_they_were_assigned(cpu_device: cb.Device) -> None:
    x = cpu_device.put(np.arange(4.0))
    assert await cb.reduction("a = a * 2; k = 3; y = sum(x) * a + k")(a=5.0, x=x).get() == 63
    with pytest.raises(cb.ShapeError, match="a is outside of sum"):
        cb.reduction("a = a * x; y = sum(x) * a")(a=5.0, x=x)


async def test_another_number_needs_no_other_plan(cpu_device: cb.Device) -> None:
    x = cpu_device.put(np.arange(4.0))
    f = cb.elementwise("x * a")
    for a in (1.0, 2.5, -3.0):
        assert (await f(x, a).get() == np.arange(4.0) * a).all()
    plans = (await cpu_device.stats()).plans["elementwise"]
    assert (plans.entries, plans.hits) == (1, 2)


async def test_results_in_place_and_several(device: cb.Device) -> None:
    x, y = device.put(np.ones(5, "f4")), device.put(np.arange(5, dtype="f4"))
    again = cb.elementwise("x += alpha * y")(x, 0.5, y)
    assert again.allocation is x.allocation
    assert (await x.get() == 1 + np.arange(5) / 2).all()
    out = device.empty(5, "f4")
    sums = cb.elementwise("s = x + y; d = x - y; big = s > d", results=("d", "big", "s"))
    d, big, s = sums(x, y, outs=(out, None, None))
    assert d.allocation is out.allocation
    a, b = await x.get(), await y.get()
    assert (await d.get() == a - b).all()
    assert (await s.get() == a + b).all()
    assert (await big.get() == (a + b > a - b)).all()
    assert (await cb.elementwise("x = y; y = x + 1", results=["y"])(y=y)[0].get() == b + 1).all()


async def test_reductions(device: cb.Device) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (6, 7)).astype("f4")
    ref = device.put(x)
    assert (await cb.reduction("sum(x * x)", axis=0)(ref).get() == (x * x).sum(0)).all()
    assert (await cb.reduction("max(x)", axis=(0, -1), keepdims=True)(ref).get() == x.max(keepdims=True)).all()
    assert (await device.elementwise.reduce("argmin(x)", ref, axis=np.int64(1)).get() == x.argmin(1)).all()
    mean = await cb.reduction("sum(x) / n", dtype="f64")(ref, n=x.size).get()
    assert mean == pytest.approx(x.mean())
    out = device.empty((), "f4")
    cb.reduction("sum(x)")(ref, out=out)
    assert await out.get() == x.sum()


def test_without_asyncio() -> None:
    with cb.sync.device("cpu") as device:
        x = device.put(np.arange(3.0))
        assert cb.elementwise("2 * x")(x).get().tolist() == [0, 2, 4]
        assert float(cb.reduction("sum(x)")(x).get()) == 3.0


@pytest.mark.parametrize(
    "call, error, why",
    [
        (lambda x: cb.elementwise("x + y")(x), TypeError, "'y' is missing"),
        (lambda x: cb.elementwise("x + y")(x, x, x), TypeError, "takes 2 arguments"),
        (lambda x: cb.elementwise("x + y")(x, z=x), TypeError, "no input 'z'"),
        (lambda x: cb.elementwise("x + y")(x, x=x), TypeError, "given twice"),
        (lambda x: cb.elementwise("x + y")(x, np.ones(3)), TypeError, "y is ndarray"),
        (lambda x: cb.elementwise("x + y")(x, "a"), TypeError, "y is str"),
        (lambda x: cb.elementwise("x + y")(1, 2), TypeError, "no array"),
        (lambda x: cb.elementwise("x + out"), cb.ShapeError, "rename"),
        (lambda x: cb.elementwise("y = x", results=("z",)), cb.ShapeError, "'z' is not assigned"),
        (lambda x: cb.elementwise("y = x", results=()), cb.ShapeError, "name each result once"),
        (lambda x: cb.elementwise("y = x", results=("y",))(x, outs=()), cb.ShapeError, "0 outs"),
        (lambda x: cb.elementwise("i = x > 0")(x, out=x), cb.ShapeError, "expected bool"),
        (lambda x: cb.elementwise("x + y")(x[1:], x, out=x), cb.ShapeError, "do not broadcast"),
        (lambda x: cb.elementwise("x + y")(x[1:], x[:-1], out=x[1:]), cb.ShapeError, "shares memory"),
        (lambda x: cb.elementwise("x + 0")(x, out=x[::-1]), cb.ShapeError, "shares memory"),
        (lambda x: cb.elementwise("x")(x.reinterpret("f8_e4m3")), cb.ShapeError, "f8_e4m3"),
        (lambda x: cb.reduction("x + 1"), cb.ShapeError, "once"),
        (lambda x: cb.reduction("sum(x)", axis="a"), cb.ShapeError, "axis 'a'"),
        (lambda x: cb.reduction("sum(x)", axis=1)(x), cb.ShapeError, "axis 1 is out of range"),
        (lambda x: cb.reduction("sum(x)", dtype="f99")(x), TypeError, "f99"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_refused(cpu_device: cb.Device, call: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        call(cpu_device.put(np.arange(4, dtype="f4")))


async def test_messages_are_checked_themselves(cpu_device: cb.Device) -> None:
    x = cpu_device.put(np.arange(4, dtype="f4"))
    with pytest.raises(cb.ShapeError, match="1 operands for x, y"):
        cpu_device.ask(Map(expression="x + y", operands=(x,)))
    with pytest.raises(cb.ShapeError, match="'z' is not an input"):
        cpu_device.ask(Map(expression="x", operands=(x,), scalars=(1,), numbers=("z",)))
    with pytest.raises(cb.ShapeError, match="give each its own name"):
        cpu_device.ask(Map(expression="x + a", operands=(x,), scalars=(1,)))
    with pytest.raises(cb.ShapeError, match="give one for each name"):
        cpu_device.ask(MapMany(expression="y = x", operands=(x,), outs=(), keep=("y",)))
    with pytest.raises(cb.ShapeError, match="that of y is"):
        cpu_device.ask(MapMany(expression="y = x + 1", operands=(x,), outs=(x[1:],), keep=("y",)))
    with pytest.raises(cb.ShapeError, match="has no array"):
        cpu_device.ask(Reduce(expression="sum(a)", operands=(), scalars=(1,), numbers=("a",)))


async def test_integers_in_a_tuple_are_looked_at_each_time(cpu_device: cb.Device) -> None:
    x = cpu_device.put(np.arange(4.0))
    f = cb.elementwise("x + a")
    assert (await f(x, 1).get() == np.arange(4.0) + 1).all()
    assert (await f(x, 2**63).get() == np.arange(4.0) + 2.0**63).all()
    assert (await f(x, 2**70).get() == np.arange(4.0) + 2.0**70).all()


async def test_a_failed_input_fails_what_is_computed_of_it(cpu_device: cb.Device) -> None:
    singular = cpu_device.solver.inverse(cpu_device.zeros((2, 2)))
    with pytest.raises(cb.NumericalError):
        await cb.elementwise("x + 1")(singular)
