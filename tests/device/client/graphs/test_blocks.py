"""Programs with blocks, drawn by hypothesis, beside the same in Python; and what is refused in a block."""

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import callboard as cb

CELLS = 4
PLACES = st.integers(0, CELLS - 1)
LEAF = st.one_of(
    st.tuples(st.just("set"), PLACES, st.integers(-1, 2)),
    st.tuples(st.just("add"), PLACES, PLACES),
    st.tuples(st.just("made"), PLACES, PLACES),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), PLACES, body, st.none() | body),
        st.tuples(st.just("while"), PLACES, body, st.integers(1, 3)),
        st.tuples(st.just("switch"), PLACES, st.dictionaries(st.integers(0, 2), body, min_size=1, max_size=2)),
    )


PROGRAMS = st.lists(st.recursive(LEAF, grown, max_leaves=6), min_size=1, max_size=5)


@pytest.fixture
def dev() -> Iterator[cb.sync.Device]:
    with cb.sync.System("blocks") as system:
        yield system.device("cpu", isolation="thread", standby=None)


def modelled(program: list[Any], cells: list[int]) -> None:
    for what, at, *rest in program:
        if what == "set":
            cells[at] = rest[0]
        elif what in ("add", "made"):
            cells[at] += cells[rest[0]]
            cells[at] = max(min(cells[at], 1000), -1000)
        elif what == "if":
            modelled(rest[0] if cells[at] else rest[1] or [], cells)
        elif what == "switch":
            modelled(rest[0].get(cells[at], []), cells)
        else:
            for _ in range(rest[1]):
                if not cells[at]:
                    break
                modelled(rest[0], cells)


def recorded(dev: cb.sync.Device, rec: Any, program: list[Any], cells: list[Any]) -> None:
    for what, at, *rest in program:
        if what == "set":
            dev.fill(cells[at], rest[0])
        elif what == "add":
            dev.elementwise.map("clip(a + b, -1000, 1000)", a=cells[at], b=cells[rest[0]], out=cells[at])
        elif what == "made":  # by way of an array that the block makes
            total = dev.elementwise.map("a + b", a=cells[at], b=cells[rest[0]])
            dev.elementwise.map("clip(t, -1000, 1000)", t=total, out=cells[at])
        elif what == "if":
            with rec.if_(cells[at]):
                recorded(dev, rec, rest[0], cells)
            if rest[1] is not None:
                with rec.else_():
                    recorded(dev, rec, rest[1], cells)
        elif what == "switch":
            with rec.switch(cells[at]) as case:
                for number in sorted(rest[0]):
                    with case(number):
                        recorded(dev, rec, rest[0][number], cells)
        else:
            with rec.while_(cells[at], most=rest[1]):
                recorded(dev, rec, rest[0], cells)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(program=PROGRAMS, start=st.lists(st.integers(-1, 3), min_size=CELLS, max_size=CELLS), inside=st.booleans())
def test_blocks_do_what_python_does(dev: cb.sync.Device, program: list[Any], start: list[int], inside: bool) -> None:
    """With cells from outside, or made by the recording; replayed twice."""
    given = [dev.put(np.int64(value)) for value in start]
    want = start.copy()
    with dev.record() as rec:
        cells = [dev.copy(cell) for cell in given] if inside else given
        recorded(dev, rec, program, cells)
        results = [dev.copy(cell) for cell in cells]
        rec.returns(*results)
    for _ in range(2):
        if inside:
            want = start.copy()
        modelled(program, want)
        assert [int(ref.get()) for ref in rec.replay()] == want
    rec.close()


def test_what_a_block_makes_is_not_there_behind_it(dev: cb.sync.Device) -> None:
    flag, x = dev.put(np.int32(1)), dev.put(np.ones((2, 2), "f4"))
    kept: list[Any] = []
    with dev.record() as rec:
        with rec.if_(flag):
            kept.append(dev.blas.gemm(x, x))
            dev.copy(kept[0], x)
        with pytest.raises(
            cb.ShapeError, match="made in a block of a recording, which may not run; make the array before"
        ):
            dev.copy(kept[0])
        with pytest.raises(cb.ShapeError, match="made in a block"):
            rec.returns(kept[0])
        with pytest.raises(cb.ShapeError, match="made in a block"), rec.if_(kept[0]):
            pass
        rec.returns(x)
    assert rec.replay().get().tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with pytest.raises(cb.GpuRefStale):
        dev.copy(kept[0])
    rec.close()


def refused(dev: cb.sync.Device, x: Any) -> None:
    dev.fill(x, 2.0)
    dev.copy(x, dev.zeros(7))


def cases(dev: cb.sync.Device, rec: Any, flag: Any, x: Any, numbers: tuple[Any, ...]) -> None:
    """A switch with these cases; None: an op outside of them, "refused": one in the last case."""
    with rec.switch(flag) as case:
        for number in numbers:
            if number is None:
                dev.fill(x, 1.0)
            elif number == "refused":
                with case(9):
                    refused(dev, x)
            else:
                with case(number):
                    dev.fill(x, 1.0)


def test_what_cannot_be_in_a_block(dev: cb.sync.Device) -> None:
    flag, x, numbers = dev.put(np.int32(1)), dev.zeros(3), dev.rng.generator(seed=1)
    real = dev.zeros(())
    with dev.record() as rec:
        with rec.if_(flag):
            with pytest.raises(cb.UnsupportedOp, match="cannot be recorded in a block: its generator takes numbers"):
                numbers.uniform(3, out=x)
            dev.rng.fill_uniform(x, position=0)
        dev.fill(x[:1], 2.0)
        with pytest.raises(RuntimeError, match="else_: it follows the block of an if_"), rec.else_():
            pass
        with pytest.raises(ValueError, match="no op of this device was called"), rec.while_(flag):
            pass
        with pytest.raises(cb.ShapeError, match="use a 0-d array of real numbers or of bool"), rec.if_(x):
            pass
        with pytest.raises(cb.ShapeError, match="use a 0-d array of integers"), rec.switch(real):
            pass
        with pytest.raises(TypeError, match="a number decides before the recording"), rec.if_(True):  # type: ignore[arg-type]
            pass
        with pytest.raises(ValueError, match="positive int"), rec.while_(flag, most=0):
            pass
        with pytest.raises(ValueError, match="no op was called in its cases"), rec.switch(flag):
            pass
        for numbers_of_cases, refusal in (((0, None), "outside its cases"), ((1, 1), "ascending numbers from 2 to 63")):
            with pytest.raises(ValueError, match=refusal):
                cases(dev, rec, flag, x, numbers_of_cases)
    assert [node.op for node in rec.nodes] == ["rng.fill_uniform", "memory.fill"], "nothing of what was refused"
    with pytest.raises(RuntimeError, match=r"if_\(\) is called inside the block that records"):
        rec.if_(flag)
    rec.close()


def test_an_exception_gives_up_its_block_alone(dev: cb.sync.Device) -> None:
    flag, x = dev.put(np.int32(1)), dev.zeros(1)
    with dev.record() as rec:
        dev.fill(x, 1.0)
        with pytest.raises(cb.ShapeError), rec.while_(flag), rec.if_(flag):
            refused(dev, x)
        with pytest.raises(cb.ShapeError):
            cases(dev, rec, flag, x, (1, 2, "refused"))
        rec.returns(x)
    assert [node.op for node in rec.nodes] == ["memory.fill"]
    assert rec.replay().get().tolist() == [1.0]
    rec.close()


def test_drawings_show_blocks(dev: cb.sync.Device) -> None:
    flag, x = dev.put(np.int32(0)), dev.zeros(1)
    with dev.record() as rec:
        dev.fill(x, 1.0)
        with rec.while_(flag):
            with rec.if_(flag):
                dev.fill(x, 2.0)
            with rec.else_():
                dev.fill(x, 3.0)
        rec.returns(x)
    assert [node.within for node in rec.nodes] == [(), ("while 0", "if 1, body 0"), ("while 0", "if 1, body 1")]
    text = rec.dot()
    assert text.count("subgraph cluster_") == 3
    assert text.count("{") == text.count("}")
    picture = rec.svg("a <title>")
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert "<title>a &lt;title&gt;</title>" in picture
    assert picture.count("<rect") == 3
    assert "[if 1, body 1]" in picture
    assert rec._repr_svg_().startswith("<svg")
    rec.close()
