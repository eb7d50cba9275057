"""Tensors in other files, wherever a model has them; names that stand for two; files that are no regular ones."""

import asyncio
import itertools
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kernel.engine.models import W, model, node

import callboard as cb
from callboard.core.errors import UnsupportedOp
from callboard.kernel.engine.choice import building
from callboard.kernel.engine.choice.steps import Steps, Stepwise
from callboard.kernel.engine.files.outside import regular_bytes, with_contents
from callboard.kernel.engine.files.protobuf import OnnxError, field_bytes, fields_of, raw_field
from callboard.kernel.engine.files.reading import OnThread
from callboard.kernel.engine.files.rewriting import whole
from callboard.kernel.engine.onnxfile import info_bytes, model_of, tensor_bytes

SECRET = np.arange(7, 19, dtype="f4")
X: Any = {"x": ("f32", ["n"])}
Y: Any = {"y": ("f32", [12])}


def elsewhere(location: str = "secret.bin", mark: bytes = field_bytes(14, 1)) -> bytes:
    """A tensor of 12 floats in another file."""
    head = b"".join(raw_field(*each) for each in fields_of(memoryview(tensor_bytes("w", SECRET))) if each[0] != 9)
    return head + field_bytes(13, field_bytes(1, "location") + field_bytes(2, location)) + mark


def constant(tensor: bytes) -> bytes:
    value = field_bytes(1, "value") + field_bytes(5, tensor) + field_bytes(20, 4)
    return field_bytes(2, "c") + field_bytes(4, "Constant") + field_bytes(5, value)


def nested(content: bytes) -> bytes:
    """A node with a graph that contains these fields."""
    graph = field_bytes(1, "then_branch") + field_bytes(6, content) + field_bytes(20, 5)
    return field_bytes(2, "c") + field_bytes(4, "If") + field_bytes(5, graph)


def function(tensor: bytes) -> bytes:
    """The function `f.F`: adds the tensor."""
    opset = field_bytes(1, "") + field_bytes(2, 17)
    return b"".join(
        [
            *(field_bytes(1, "F"), field_bytes(4, "x"), field_bytes(5, "y"), field_bytes(9, opset)),
            *(field_bytes(7, constant(tensor)), field_bytes(7, node("Add", ["c", "x"], ["y"])), field_bytes(10, "f")),
        ]
    )


def with_function(tensor: bytes) -> bytes:
    """A model that calls the function."""
    opset = field_bytes(1, "f") + field_bytes(2, 1)
    calls = model([node("F", ["x"], ["y"], domain="f")], X, Y)
    return calls + field_bytes(8, opset) + field_bytes(25, function(tensor))


def in_graph(fields: bytes) -> bytes:
    """A model whose graph has these fields, too."""
    return b"".join(
        field_bytes(7, bytes(value) + fields) if number == 7 else raw_field(number, wire, value)
        for number, wire, value in fields_of(memoryview(model([node("Identity", ["x"], ["y"])], X, Y)))
    )


def of_attribute(number: int, content: bytes) -> bytes:
    body = field_bytes(2, "c") + field_bytes(4, "Op")
    return in_graph(field_bytes(1, body + field_bytes(5, field_bytes(1, "a") + field_bytes(number, content))))


PLACES: dict[str, Callable[[bytes], bytes]] = {
    "initializer": lambda tensor: in_graph(field_bytes(5, tensor)),
    "values of a sparse initializer": lambda tensor: in_graph(field_bytes(15, field_bytes(1, tensor))),
    "indices of a sparse initializer": lambda tensor: in_graph(field_bytes(15, field_bytes(2, tensor))),
    "attribute": lambda tensor: in_graph(field_bytes(1, constant(tensor))),
    "attribute without a kind": lambda tensor: of_attribute(5, tensor),
    "tensors of an attribute": lambda tensor: of_attribute(10, tensor),
    "graphs of an attribute": lambda tensor: of_attribute(11, field_bytes(5, tensor)),
    "sparse attribute": lambda tensor: of_attribute(22, field_bytes(1, tensor)),
    "sparse attributes": lambda tensor: of_attribute(23, field_bytes(2, tensor)),
    "graph in a graph": lambda tensor: in_graph(field_bytes(1, nested(field_bytes(1, nested(field_bytes(5, tensor)))))),
    "function": with_function,
    "default of a function": lambda tensor: (
        model([node("Identity", ["x"], ["y"])], X, Y)
        + field_bytes(25, field_bytes(11, field_bytes(1, "a") + field_bytes(5, tensor)))
    ),
    "training": lambda tensor: (
        model([node("Identity", ["x"], ["y"])], X, Y) + field_bytes(20, field_bytes(2, field_bytes(5, tensor)))
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_in_another_file_is_found(tmp_path: Path, place: str) -> None:
    data = PLACES[place](elsewhere())
    with pytest.raises(OnnxError, match=r"'w' is in another file, 'secret\.bin'; pass the path of the model"):
        model_of(data)
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    found = with_contents(data, tmp_path)
    assert (found.count(SECRET.tobytes()), b"location" in found, b"secret.bin" in found) == (1, False, False)
    (tmp_path / "in").mkdir()
    with pytest.raises(OnnxError, match="No such file"):
        with_contents(data, tmp_path / "in")
    with pytest.raises(OnnxError, match="it is not beside the model"):
        with_contents(PLACES[place](elsewhere("../secret.bin")), tmp_path / "in")


@pytest.mark.parametrize(
    "mark",
    [
        field_bytes(14, 1) + field_bytes(14, 7),  # the 7 is no value of the enumeration: other readers keep the 1
        field_bytes(14, (1 << 32) + 1),  # they keep 32 bits
        field_bytes(14, 0) + field_bytes(14, 1),
        field_bytes(14, b"\1"),
    ],
)
def test_a_mark_that_readers_take_in_different_ways_counts(mark: bytes) -> None:
    with pytest.raises(OnnxError, match="'w' is in another file"):
        with_contents(in_graph(field_bytes(5, elsewhere(mark=mark))), None)


def test_field_numbers_that_other_readers_cut_off_are_refused() -> None:
    hidden = (1 << 29) + 7
    with pytest.raises(OnnxError, match=f"there is no field {hidden}"):
        model_of(model([node("Identity", ["x"], ["y"])], X, Y) + field_bytes(hidden, b""))


def test_messages_nested_too_deep() -> None:
    content = field_bytes(5, elsewhere())
    for _ in range(300):
        content = field_bytes(1, nested(content))
    with pytest.raises(OnnxError, match="nested deeper"):
        with_contents(field_bytes(7, content), None)


async def test_a_function_does_not_read_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "net.onnx"
    path.write_bytes(with_function(elsewhere()))
    (tmp_path / "secret.bin").write_bytes(SECRET.tobytes())
    monkeypatch.chdir(tmp_path)
    async with cb.device("cpu") as dev:
        for given in (path, "models/net.onnx", path.read_bytes()):
            with pytest.raises(OnnxError, match="'w' is in"):
                await dev.engine.build(given, engine="onnxruntime")
        beside = path.with_name("secret.bin")
        beside.write_bytes((2 * SECRET).tobytes())
        plan = await dev.engine.build(path, engine="onnxruntime")
        found = await dev.engine.context(plan)(x=np.ones(1, "f4")).get()
    np.testing.assert_array_equal(found, 2 * SECRET + 1)


@pytest.mark.parametrize(
    "number, name, words",
    [
        (11, "x", "net: the graph has the input 'x' twice; leave one out"),
        (12, "y", "net: the graph has the output 'y' twice; leave one out, or pass it through an Identity node"),
        (11, "", "net: input 1 of the graph has no name"),
        (12, "", "net: output 1 of the graph has no name"),
    ],
)
async def test_names_that_stand_for_two_are_refused(number: int, name: str, words: str) -> None:
    data = in_graph(field_bytes(number, info_bytes(name, "f32", ["n"])))
    async with cb.device("cpu") as dev:
        for engine in ("callboard", "onnxruntime", None):
            with pytest.raises(OnnxError, match=words):
                await dev.engine.build(data, engine=engine, title="net")


async def test_control_characters_of_names_are_escaped() -> None:
    strange = tensor_bytes("a\0b\x1b", W).replace(field_bytes(2, 1), field_bytes(2, 99), 1)
    async with cb.device("cpu") as dev:
        with pytest.raises(UnsupportedOp, match=r"the dtype of the initializer a.x00b.x1b;"):
            await dev.engine.build(in_graph(field_bytes(5, strange)), engine="callboard")
    with pytest.raises(OnnxError, match=r"'a.x00b.x1b' has the extent -1") as caught:
        model_of(in_graph(field_bytes(5, tensor_bytes("a\0b\x1b", W) + field_bytes(1, -1))))
    assert str(caught.value).isprintable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
async def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "net.onnx").write_bytes(in_graph(field_bytes(5, elsewhere("pipe"))))
    async with cb.device("cpu") as dev:
        for given, words in (
            (tmp_path / "pipe", r"pipe' is a pipe \(FIFO\); pass a regular file"),
            ("/dev/null", "'/dev/null' is a device; pass a regular file"),
            (tmp_path, "is a folder; pass a regular file"),
            (tmp_path / "net.onnx", "'w' is in the file 'pipe', which cannot be read: .* is a pipe"),
        ):
            with pytest.raises(OnnxError, match=words):
                await dev.engine.build(given)
        with pytest.raises(OnnxError, match="is a pipe"):
            await dev.engine.load(tmp_path / "pipe")
        with pytest.raises(FileNotFoundError):
            await dev.engine.build(tmp_path / "none.onnx")


def test_parts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.data"
    path.write_bytes(b"0123456789")
    assert (regular_bytes(path, 2, 3), regular_bytes(path, 8), regular_bytes(path, 11)) == (b"234", b"89", b"")
    for begin, length in ((-1, None), (0, -1), (8, 3), (2**70, 1), (0, 2**62)):
        with pytest.raises(OnnxError, match=r"net\.data"):
            regular_bytes(path, begin, length)


async def test_a_file_is_read_on_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, readers = threading.Event(), []

    def slowly(path: Any) -> bytes:
        readers.append(threading.current_thread())
        assert go.wait(60)
        return whole(path)

    monkeypatch.setattr("callboard.kernel.engine.choice.building.whole", slowly)
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("Identity", ["x"], ["y"])], X, {"y": ("f32", ["n"])}))
    async with cb.device("cpu") as dev:
        with pytest.raises(cb.ShapeError, match="engine is 'none'"):
            dev.engine.build(path, engine="none")
        answer = dev.engine.build(path, engine="callboard")
        assert not answer.done()
        impatient = asyncio.ensure_future(wait_for(answer))
        await asyncio.sleep(0)  # the loop runs while the thread waits
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        go.set()
        title = await answer.then(lambda plan: plan.title)
        assert (title, (await answer).title, answer.done()) == ("net.onnx", "net.onnx", True)
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


async def test_bytes_are_read_and_mapped_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """While each of them waits, the loop runs; a wait that is cancelled leaves the answer as it is."""
    go, called = threading.Event(), []

    def slowly(name: str) -> None:
        original = getattr(building, name)

        def call(*args: Any) -> Any:
            called.append((name, threading.current_thread() is threading.main_thread()))
            assert go.wait(60)
            return original(*args)

        monkeypatch.setattr(building, name, call)

    for name in ("read_model", "Mapped", "digest_of"):
        slowly(name)
    data = model([node("Identity", ["x"], ["y"])], X, {"y": ("f32", ["n"])})
    async with cb.device("cpu") as dev:
        for engine, second in (("callboard", "Mapped"), ("onnxruntime", "digest_of")):
            if engine == "onnxruntime":
                pytest.importorskip("onnxruntime")
            go.clear()
            called.clear()
            answer = dev.engine.build(data, engine=engine)
            impatient = asyncio.ensure_future(wait_for(answer))
            await asyncio.sleep(0)  # the loop runs while the thread waits
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            go.set()
            plan = await answer
            assert called == [("read_model", False), (second, False)]
            called.clear()
            assert (await dev.engine.load(plan.serialize())).engine == engine
            assert called == [("read_model", False), (second, False)]


def test_a_plan_is_tried_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node pauses, as if each took a slice of time."""
    monkeypatch.setattr("callboard.kernel.engine.inputs.budget.SLICE", 0.0)
    monkeypatch.setattr("callboard.kernel.engine.mapped.graph.REHEARSAL", math.inf)
    names = ["x", *(f"v{at}" for at in range(49)), "y"]
    nodes = [node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    data = model(nodes, {"x": ("f32", [2, 3])}, {"y": ("f32", [2, 3])})
    with cb.sync.device("cpu") as dev:
        made = building.Building(dev.ask, dev.put, dev.engine.context, dev.engine.release)
        pauses = 0

        def counted(steps: Steps[Any]) -> Steps[Any]:
            nonlocal pauses
            pending = next(steps)
            while True:
                pauses += pending is None
                found = yield pending
                try:
                    pending = steps.send(found)
                except StopIteration as e:
                    return e.value

        wanted = building.Wanted("net", None, "callboard", False, 0)
        assert Stepwise(counted(made.steps(data, wanted))).result(60).title == "net"
        assert pauses >= 50


async def wait_for(answer: Any) -> Any:
    return await answer


def test_without_a_loop(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("Identity", ["x"], ["y"])], X, {"y": ("f32", ["n"])}))
    with cb.sync.device("cpu") as dev:
        plan = dev.engine.build(path, engine="callboard").result(60)
        (tmp_path / "net.plan").write_bytes(plan.serialize())
        assert dev.engine.load(tmp_path / "net.plan").result(60).title == "net.onnx"
        with pytest.raises(FileNotFoundError):
            dev.engine.build(tmp_path / "none.onnx").result(60)


async def test_what_a_thread_raises_is_the_answer() -> None:
    def fails() -> bytes:
        raise OSError("gone")

    found = OnThread(fails)
    with pytest.raises(OSError, match="gone"):
        found.result(60)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await found
