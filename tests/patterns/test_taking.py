"""``taken``: what is copied of an item, what is not, and what the copy looks like."""

import array
import collections
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.patterns.contract.atcall import as_given, at_the_call
from callboard.patterns.contract.taking import taken


class Row(NamedTuple):
    name: str
    data: Any


class Message(msgspec.Struct):
    data: Any
    name: str = ""


class Frozen(msgspec.Struct, frozen=True):
    data: Any


@dataclass
class Record:
    data: Any
    more: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenRecord:
    data: Any


class Config(dict[str, Any]):
    owner = "tests"


class Tokens(collections.UserDict[str, Any]):
    pass


class Unknown:
    def __init__(self, data: Any) -> None:
        self.data = data


def ones() -> Any:
    return np.ones(4, np.float32)


def objects() -> Any:
    found = np.empty(2, object)
    found[:] = [bytearray(b"\x01\x01"), "text"]
    return found


BUFFERS: dict[str, Callable[[], Any]] = {
    "array": ones,
    "bytearray": lambda: bytearray(b"\x01\x01\x01\x01"),
    "memoryview": lambda: memoryview(bytearray(b"\x01\x01\x01\x01")),
    "memoryview of numbers": lambda: memoryview(np.ones((2, 2), np.int32)),
    "array.array": lambda: array.array("i", [1, 1, 1, 1]),
    "rows": lambda: np.ones((4, 4), np.float32)[::2, ::2],
    "masked array": lambda: np.ma.array(np.ones(4), mask=[0, 1, 0, 0]),
    "record": lambda: np.ones(2, [("a", "i4"), ("b", "f8")])[0],
}

AROUND: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "alone": (lambda x: x, lambda x: x),
    "list": (lambda x: [1, x], lambda x: x[1]),
    "tuple": (lambda x: (1, x), lambda x: x[1]),
    "named tuple": (lambda x: Row("a", x), lambda x: x.data),
    "dict": (lambda x: {"a": 1, "b": x}, lambda x: x["b"]),
    "ordered dict": (lambda x: collections.OrderedDict(b=x), lambda x: x["b"]),
    "default dict": (lambda x: collections.defaultdict(list, b=x), lambda x: x["b"]),
    "dict of its own": (lambda x: Config(b=x), lambda x: x["b"]),
    "user dict": (lambda x: Tokens(b=x), lambda x: x["b"]),
    "deque": (lambda x: collections.deque([x], 3), lambda x: x[0]),
    "Struct": (Message, lambda x: x.data),
    "frozen Struct": (Frozen, lambda x: x.data),
    "dataclass": (Record, lambda x: x.data),
    "frozen dataclass": (FrozenRecord, lambda x: x.data),
    "Decode": (lambda x: cb.Decode([1], parameters={"x": x}), lambda x: x.parameters["x"]),
    "deep": (lambda x: [{"a": (Message(Record([x])),)}], lambda x: x[0]["a"][0].data.data[0]),
}


def write(buffer: Any) -> None:
    """Make it something else, in place."""
    if isinstance(buffer, np.void):
        buffer["a"] = 7
    elif isinstance(buffer, np.ndarray):
        buffer[...] = 7
    elif isinstance(buffer, memoryview):
        np.asarray(buffer)[...] = 7
    else:
        for at in range(len(buffer)):
            buffer[at] = 7


def text(buffer: Any) -> str:
    """Its contents."""
    return repr(buffer.tolist() if hasattr(buffer, "tolist") else buffer)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", BUFFERS)
@pytest.mark.few(len(BUFFERS) + len(AROUND))
def test_a_buffer_is_copied_wherever_it_is(kind: str, around: str) -> None:
    wrap, inner = AROUND[around]
    buffer = BUFFERS[kind]()
    item = wrap(buffer)
    before = text(buffer)
    own = taken(item)
    write(buffer)
    assert text(buffer) != before  # the caller's own memory
    assert type(own) is type(item)
    assert type(inner(own)) is type(buffer)
    assert text(inner(own)) == before


@pytest.mark.parametrize("around", [name for name in AROUND if "frozen" not in name and name != "alone"])
@pytest.mark.few(len(AROUND))
def test_the_copy_is_the_servers_own(around: str) -> None:
    """Also its containers: a list of tokens that grows, a dict that is filled anew."""
    wrap, inner = AROUND[around]
    item = wrap([1, 2])
    own = taken(item)
    inner(item).append(3)
    assert inner(own) == [1, 2]


def test_records_that_can_change_are_copied() -> None:
    record, message = Record(1), Message(1)
    own, sent = taken(record), taken(message)
    record.data = message.data = 2
    assert (own.data, sent.data) == (1, 1)


FIXED: dict[str, Callable[[], Any]] = {
    "text": lambda: "text",
    "bytes": lambda: b"bytes",
    "number": lambda: 3,
    "scalar": lambda: np.float32(3),
    "tuple": lambda: (1, "a", (2.0, None)),
    "named tuple": lambda: Row("a", 1),
    "frozen dataclass": lambda: FrozenRecord(1),
    "frozen Struct": lambda: Frozen("a"),
    "bytes as an array": lambda: np.frombuffer(b"12345678", np.float32),
    "bytes as a view": lambda: memoryview(b"1234"),
    "other object": lambda: Unknown(ones()),
    "function": lambda: ones,
    "class": lambda: Record,
}


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.few(len(FIXED))
def test_what_no_caller_writes_is_not_copied(kind: str) -> None:
    item = FIXED[kind]()
    assert taken(item) is item


def test_an_array_is_fixed_if_it_is_read_only_and_owns_its_memory() -> None:
    whole = ones()
    view = whole[1:]
    view.flags.writeable = False
    assert taken(view) is not view  # it is written through the other
    whole.flags.writeable = False
    assert taken(whole) is whole
    assert taken(view) is view


def test_the_layout_stays() -> None:
    item = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    own = taken(item)
    assert own.strides == item.strides
    assert own.flags.writeable


def test_a_list_of_its_own_class_keeps_it() -> None:
    class Batch(list[Any]):
        pass

    item = Batch([ones()])
    own = taken(item)
    item[0][:] = 7
    assert type(own) is Batch
    assert own[0].tolist() == [1, 1, 1, 1]


def test_objects_in_an_array() -> None:
    item = objects()
    own = taken(item)
    item[0][:] = b"\x07\x07"
    item[1] = "other"
    assert own.tolist() == [bytearray(b"\x01\x01"), "text"]


class Refusing(dict[str, Any]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("not to be copied")


@dataclass
class RefusingRecord:
    data: Any

    def __copy__(self) -> Any:
        raise RuntimeError("not to be copied")


def test_what_refuses_to_be_copied_is_taken_as_it_is() -> None:
    for item in (Refusing(a=[1]), RefusingRecord([1])):
        assert taken(item) is item


def test_a_set_and_a_read_only_view() -> None:
    item, memory = {1, 2}, bytearray(b"\x01\x01")
    own, view = taken(item), taken(memoryview(memory).toreadonly())
    item.add(3)
    memory[:] = b"\x07\x07"
    assert own == {1, 2}
    assert view.readonly
    assert bytes(view) == b"\x01\x01"


def test_a_tensor_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    item = {"x": torch.ones(4), "meta": torch.ones(4, device="meta")}
    own = taken(item)
    item["x"].fill_(7)
    assert own["x"].tolist() == [1, 1, 1, 1]
    assert own["meta"] is item["meta"]


def test_a_model_of_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    Request = pydantic.create_model("Request", tokens=(list[int], ...), name=(str, "a"))
    item = Request(tokens=[1, 2])
    own = taken(item)
    item.tokens.append(3)
    item.name = "b"
    assert (own.tokens, own.name) == ([1, 2], "a")


async def test_memory_that_is_lent_is_not_copied() -> None:
    async with cb.device("cpu", isolation="process") as gpu:
        lent = gpu.host_empty((4, 4))
        assert taken(lent) is lent
        row = lent[1]
        assert taken((row, 1))[0] is row
        ref = gpu.put(ones())
        assert taken([ref])[0] is ref


def test_an_item_that_contains_itself_is_refused() -> None:
    item: list[Any] = []
    item.append(item)
    with pytest.raises(TypeError, match=r"the item \(list\) contains itself, or is nested too deeply"):
        taken(item)


# -- methods that take their argument at the call ------------------------------------------------------------------


class Server:
    @at_the_call
    async def submit(self, item: Any, *, k: int = 1) -> Any:
        """Give it an item."""
        return item

    @at_the_call
    async def stream(self, item: Any) -> Any:
        yield item

    @at_the_call
    def iterate(self, item: Any) -> Any:
        yield item


async def test_code_that_runs_later_gets_what_was_given() -> None:
    server = Server()
    for way in (lambda x: server.submit(x), lambda x: server.submit(item=x, k=2)):
        buffer = ones()
        waiting = way(buffer)
        buffer[:] = 7
        assert (await waiting).tolist() == [1, 1, 1, 1]
    buffer = ones()
    parts, values = server.stream(buffer), server.iterate(buffer)
    buffer[:] = 7
    assert [each.tolist() async for each in parts] == [[1, 1, 1, 1]]
    assert [each.tolist() for each in values] == [[1, 1, 1, 1]]


async def test_without_a_copy() -> None:
    server, buffer = Server(), ones()
    assert await as_given(server.submit)(buffer) is buffer
    assert as_given(len) is len


def test_such_a_method_is_told_as_what_it_is() -> None:
    server = Server()
    assert inspect.iscoroutinefunction(server.submit)
    assert inspect.iscoroutinefunction(functools.partial(server.submit, k=2))
    assert inspect.isasyncgenfunction(server.stream)
    assert inspect.isgeneratorfunction(server.iterate)
    assert str(inspect.signature(server.submit)) == "(item: Any, *, k: int = 1) -> Any"
    assert inspect.getdoc(server.submit) == "Give it an item."
    assert server.submit.__qualname__ == "Server.submit"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'item'"):
        server.submit()  # type: ignore[call-arg]
