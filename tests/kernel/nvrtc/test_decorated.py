"""A kernel as an op: errors, order, failures and generations, on a CPU in thread and process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.kernel.nvrtc.geometry import geometry
from callboard.kernel.nvrtc.source import source_of

Array = np.ndarray[Any, Any]
WAIT = 30.0


@cb.kernel("in x: f32[n], out y: f32[n], alpha: f32", cuda="text")
def scaled(x: Array, y: Array, alpha: float) -> None:
    np.multiply(x, alpha, out=y)


@cb.kernel("inout x: f32[n], by: f32", cuda="text")
def grown(x: Array, by: float) -> None:
    x += by


@cb.kernel("in x: f32[n], out y: f32[n]", cuda="text")
def failing(x: Array, y: Array) -> None:
    raise ArithmeticError("no way")


@cb.kernel("in x: f32[n], out y: f32[n]", cuda="text")
def returning(x: Array, y: Array) -> Array:
    return x


@cb.kernel("in x: f32[n], inout y: f32[n]", cuda="text")
def writing_what_it_reads(x: Array, y: Array) -> None:
    x += 1


@pytest.fixture(params=["thread", "process"])
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=request.param, standby=None) as opened:
        yield opened


async def test_launches_are_in_order_with_all_other_ops(dev: cb.Device) -> None:
    x = dev.put(np.zeros(4, "f4"))
    copies = []
    for k in range(50):
        grown(x, 1.0)
        copies.append(dev.copy(x) if k % 2 else scaled(x, 1.0))
    async with asyncio.timeout(WAIT):
        assert [(await copy.get())[0] for copy in copies] == list(range(1, 51))


async def test_a_body_that_fails_fails_its_op_and_whoever_reads_what_it_writes(dev: cb.Device) -> None:
    y = failing(dev.put(np.ones(3, "f4")))
    z = scaled(y, 2.0)
    for ref in (y, z):
        with pytest.raises(cb.LibraryError, match="failing failed: ArithmeticError: no way"):
            await ref
    with pytest.raises(cb.LibraryError, match="the body returned ndarray; write into the outputs"):
        await returning(dev.put(np.ones(3, "f4")))
    with pytest.raises(cb.LibraryError, match="read-only"):
        await writing_what_it_reads(dev.put(np.ones(3, "f4")), dev.put(np.ones(3, "f4")))
    assert (await scaled(dev.put(np.ones(3, "f4")), 2.0).get()).tolist() == [2, 2, 2]


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "an argument is missing": (lambda x: scaled(x), TypeError, "scaled: alpha is missing; it takes a number, f32"),
    "an array is missing": (lambda x: scaled(alpha=1), TypeError, "scaled: x is missing; it takes in f32[n]"),
    "too many": (lambda x: scaled(x, 1, 2), TypeError, "scaled takes 2 arguments by position (x, alpha), 3 were"),
    "twice": (lambda x: scaled(x, 1, x=x), TypeError, "scaled: x is passed twice"),
    "unknown": (lambda x: scaled(x, 1, beta=1), TypeError, "scaled has no parameter beta; its parameters are x, y,"),
    "a host array": (lambda x: scaled(np.ones(3), 1), TypeError, "scaled: x is ndarray; pass a GpuRef"),
    "no number": (lambda x: scaled(x, "1"), TypeError, "scaled: alpha is str; pass a number"),
    "an array for a number": (
        lambda x: scaled(x, x),
        TypeError,
        "scaled: alpha is an array; pass a number, or declare",
    ),
    "beyond f32": (lambda x: scaled(x, 1e39), cb.ShapeError, "scaled: alpha is 1e+39; f32 holds up to 3.4"),
    "complex": (lambda x: scaled(x, 1j), TypeError, "scaled: alpha is 1j; f32 takes a real number"),
    "another dtype": (
        lambda x: scaled(x.reinterpret("i32"), 1),
        cb.ShapeError,
        "x is i32[4], expected f32",
    ),
    "gaps": (lambda x: scaled(x[::2], 1), cb.ShapeError, "a kernel takes arrays without gaps (pass dev.copy of it)"),
    "an output that is read": (lambda x: scaled(x, 1, y=x), cb.ShapeError, "shares memory with"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_does_not_fit_is_refused_before_anything_is_sent(case: str) -> None:
    call, kind, says = REFUSED[case]
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        x = dev.put(np.ones(4, "f4"))
        await x
        with pytest.raises(kind) as caught:
            call(x)
        assert says in str(caught.value)
        assert (await dev.stats()).in_flight == 0


DECLARED_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "takes what is not declared": ({"params": "in x: f32[n]"}, "body takes y, which its parameters do not declare"),
    "does not take what is": ({"params": "in x: f32[n], out y: f32[n], z: f32"}, "body does not take z"),
    "a grid of nothing known": (
        {"grid": lambda rows: rows},
        "grid uses rows, which is neither a parameter nor an extent",
    ),
    "no text": ({"cuda": b"text"}, "source is bytes; pass the text of a kernel in CUDA C++"),
    "options as a text": ({"options": "-G"}, "options is '-G'; pass a sequence of them"),
}


@pytest.mark.parametrize("case", DECLARED_WRONG)
def test_a_wrong_declaration_is_refused_where_it_is_made(case: str) -> None:
    fields, says = DECLARED_WRONG[case]
    with pytest.raises(TypeError) as caught:

        @cb.kernel(**{"params": "in x: f32[n], out y: f32[n]", "cuda": "text", **fields})
        def body(x: Array, y: Array) -> None:
            y[...] = x

    assert says in str(caught.value)


async def test_rules_are_asked_with_extents_arrays_and_numbers() -> None:
    @cb.kernel(
        "in x: f32[h, w], out y: f32[h, w], step: i32",
        cuda="text",
        grid=lambda h, x, step: (h, x.size // step),
        block=lambda w: (w, 2),
        shared=lambda step: 4 * step,
        cluster=lambda h: h,
    )
    def body(x: Array, y: Array, step: int) -> None:
        y[...] = x

    async with cb.device("cpu", standby=None) as dev:
        x = dev.put(np.ones((4, 8), "f4"))
        assert body.op(x, 2).spec.geometry == geometry("", (4, 16), (8, 2), 8, 4)
        assert body.op(x, step=4).spec.geometry == geometry("", (4, 8), (8, 2), 16, 4)


async def test_a_new_number_needs_no_new_plan() -> None:
    async with cb.device("cpu", standby=None) as dev:
        x = dev.put(np.ones(4, "f4"))
        for k in range(10):
            await scaled(x, float(k))
            await scaled(x, k)  # an integer is as good as a float
        assert (await dev.stats()).plans["nvrtc"].entries == 1


async def test_a_kernel_is_good_in_every_generation() -> None:
    import os
    import signal

    async with cb.device("cpu", isolation="process", standby=None) as dev:
        before = scaled(dev.put(np.ones(3, "f4")), 2.0)
        await before
        pid = dev.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(WAIT):
            await dev.watch_generation().changed()
            await dev.ready()
            assert (await scaled(dev.put(np.ones(3, "f4")), 3.0).get()).tolist() == [3, 3, 3]
        with pytest.raises(cb.GpuRefStale):
            scaled(before, 1.0)


async def test_a_body_that_refers_to_what_cannot_travel_is_refused_at_its_first_call() -> None:
    import threading

    lock, large = threading.Lock(), np.ones(1 << 18)

    @cb.kernel("inout x: f32[n]", cuda="text")
    def locked(x: Array) -> None:
        with lock:
            x += 1

    @cb.kernel("inout x: f32[n]", cuda="text")
    def weighty(x: Array) -> None:
        x += large[: len(x)]

    async with cb.device("cpu", standby=None) as dev:
        x = dev.put(np.ones(3, "f4"))
        with pytest.raises(TypeError, match=r"locked cannot be sent to a context host: TypeError: cannot pickle"):
            locked(x)
        with pytest.raises(
            TypeError, match=r"weighty has 2,\d+,\d+ bytes with all that it refers to, at most 1,048,576"
        ):
            weighty(x)


async def test_in_a_resident_actor_too() -> None:
    class Doubler(cb.ResidentActor):
        def setup(self, ctx: cb.HostContext) -> None:
            self.device = ctx.device

        def twice(self, x: Any) -> Array:
            return np.array(self.device.nvrtc.run(scaled, x, 2.0).get())

    async with cb.device("cpu", standby=None) as dev:
        doubler = dev.actor_of(cb.Props(Doubler))
        assert (await doubler.call(Doubler.twice, np.ones(3, "f4"))).tolist() == [2, 2, 2]


GEOMETRIES: dict[str, tuple[tuple[Any, ...], str]] = {
    "a block too wide": (((1,), (1025,)), "block.x is 1025; it must lie between 1 and 1024"),
    "a block too large": (((1,), (32, 33)), "block [32, 33, 1] has 1056 threads, at most 1024"),
    "no block": (((1,), (0,)), "block.x is 0"),
    "a grid too high": (((1, 65536), (1,)), "grid.y is 65536; it must lie between 0 and 65535"),
    "less than no grid": ((-1, 1), "grid.x is -1"),
    "four axes": (((1, 1, 1, 1), 1), "grid is (1, 1, 1, 1); pass one to three numbers"),
    "no numbers": (((1.5,), 1), "grid (1.5,): pass an int or a sequence of ints"),
    "shared memory": ((1, 1, 2**30), "shared is 1073741824 bytes"),
    "an empty cluster": ((4, 1, 0, (0,)), "cluster is [0, 1, 1]; a cluster has at least one block"),
    "a cluster beyond the hard limit": (
        (32, 1, 0, 32),
        "cluster [32, 1, 1] has 32 blocks; every GPU with clusters takes 8",
    ),
    "a grid that clusters do not divide": ((6, 1, 0, 4), "grid.x is 6, which clusters of 4 do not divide"),
}


@pytest.mark.parametrize("case", GEOMETRIES)
def test_a_geometry_that_no_gpu_takes(case: str) -> None:
    arguments, says = GEOMETRIES[case]
    with pytest.raises(cb.ShapeError) as caught:
        geometry("f", *arguments)
    assert says in str(caught.value)


def test_options_that_are_decided_elsewhere() -> None:
    for option, cure in (("-arch=sm_80", "the device says"), ("--std=c++20", "pass std="), ("-dlto", "pass lto=True")):
        with pytest.raises(cb.ShapeError, match=cure):
            source_of("text", (option,))
    made = source_of("text", ("-lineinfo",), ftz=True, max_registers=64, fast_math=True)
    assert made.options == ("--ftz=true", "--maxrregcount=64", "--use_fast_math", "-lineinfo")
    with pytest.raises(cb.ShapeError, match="max_registers is 300; a thread has 16 to 255"):
        source_of("text", max_registers=300)
