"""Replies and refs are not arrays: using them as if they were raises an error that names the alternative."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb

ONES = np.ones(3)

USES: dict[str, Callable[[Any], Any]] = {
    "==": lambda x: x == ONES,
    "== None": lambda x: x == None,  # noqa: E711 -- what is tested
    "!=": lambda x: x != 1,
    "array ==": lambda x: ONES == x,  # noqa: SIM300 -- NumPy's operator is called
    "<": lambda x: x < 1,
    "+": lambda x: x + 1,
    "1 +": lambda x: 1 + x,
    "array @": lambda x: ONES @ x,
    "-": operator.neg,
    "bool": bool,
    "if": lambda x: 1 if x else 0,
    "float": float,
    "index": operator.index,
    "in": lambda x: 1.0 in x,
    "[] =": lambda x: operator.setitem(x, 0, 1.0),
}
OF_REPLIES: dict[str, Callable[[Any], Any]] = {
    **USES,
    "np.max": np.max,
    "np.asarray": np.asarray,
    "np.asarray of a list": lambda x: np.asarray([x, x]),
    "len": len,
    "iter": list,
    "[]": lambda x: x[0],
}


@pytest.fixture(scope="module")
def cpu() -> Iterator[cb.sync.Device]:
    with cb.sync.device("cpu", isolation="thread", standby=None) as device:
        assert 1.0 in device.put(ONES)  # starts its threads
        yield device


@pytest.fixture
def ref(cpu: cb.sync.Device) -> cb.GpuRef[Any]:
    return cpu.put(ONES)


@pytest.fixture
def reply(cpu: cb.sync.Device, ref: cb.GpuRef[Any]) -> cb.Reply[Any]:
    """What ``ref.get()`` of an async device gives."""
    return cpu._transfers.get(ref, None)


@pytest.mark.parametrize("use", OF_REPLIES.values(), ids=OF_REPLIES.keys())
def test_a_reply_says_to_await_it_first(reply: cb.Reply[Any], use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="of a Reply, which is not the result: await it first"):
        use(reply)
    np.testing.assert_array_equal(reply.result(), ONES)


@pytest.mark.parametrize("name", ["shape", "dtype", "T", "max", "astype", "tolist", "numpy", "cpu"])
def test_an_attribute_of_the_value_says_to_await_it_first(reply: cb.Reply[Any], name: str) -> None:
    with pytest.raises(AttributeError, match=rf"await it first, `\(await reply\)\.{name}`"):
        getattr(reply, name)
    assert not hasattr(reply, name)
    assert name not in dir(reply)


VALUES = ("bool", "if", "float", "index", "in")
"""What needs a value."""


@pytest.mark.parametrize("use", [USES[name] for name in VALUES], ids=VALUES)
async def test_a_ref_of_an_async_device_says_to_await_its_value(use: Callable[[Any], Any]) -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as cpu:
        with pytest.raises(TypeError, match=r"of a GpuRef \(f64\[\] on cpu:0\).*`await ref\.get\(\)`"):
            use(cpu.put(np.float64(1.0)))


@pytest.mark.parametrize("use", [USES["=="], USES["array =="]], ids=["==", "array =="])
def test_a_ref_beside_an_array_of_the_host_says_to_put_it(ref: cb.GpuRef[Any], use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"equal of .* and an array of the host .* put that on the device first"):
        use(ref)


def test_a_ref_of_a_blocking_device_says_whether_it_has_a_value(ref: cb.GpuRef[Any]) -> None:
    assert 1.0 in ref
    assert 2.0 not in ref


def test_containers_find_a_ref_by_its_identity(cpu: cb.sync.Device, ref: cb.GpuRef[Any]) -> None:
    other = cpu.put(ONES)
    assert {ref: 1, other: 2}[other] == 2
    assert ref in [ref, other]
    assert (ref, other) == (ref, other)
    assert (ref == None) is False  # noqa: E711 -- what is tested
    assert ref in {other, ref}
    assert len(ref) == 3
    assert {"dtype", "astype", "sum", "tolist"} <= set(dir(ref))
    assert "ctypes" not in dir(ref)


async def test_numpy_takes_no_ref_without_being_told_how() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as cpu:
        ref = cpu.put(ONES)
        for use, text in (
            (np.max, r"cb\.xp\.max"),
            (USES["array =="], "put that on the device first"),
            (USES["array @"], r"cb\.xp\.matmul"),
            (np.asarray, "array of a GpuRef"),
        ):
            with pytest.raises(TypeError, match=text):
                use(ref)
