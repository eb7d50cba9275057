"""Messages of a host are data: a tampered message runs no code in the application."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cloudpickle import cloudpickle
from tests.device.residents.lab import OwnError, Probe
from tests.device.residents.test_values import Colour, Pair, Point, Record

import callboard as cb
from callboard.device.client.residents.calls import CallEnd
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import FailureMessage, ProtocolError, RoomWanted
from callboard.device.protocol.residents import values
from callboard.device.protocol.residents.classes import identity, known_class
from callboard.device.protocol.residents.exceptions import rebuilt
from callboard.device.protocol.residents.values import Unpacker, encode

HERE = "tests.device.residents.test_values"
ran: list[str] = []


class Trap:
    """Notes that it was made."""

    def __init__(self, *args: Any) -> None:
        ran.append("outputs")


class Bomb:
    def __reduce__(self) -> Any:
        return exec, ("from tests.device.residents import test_tampered; test_tampered.ran.append('unpickled')",)


@pytest.fixture(autouse=True)
def nothing_runs() -> Any:
    ran.clear()
    before = set(sys.modules)
    yield
    assert ran == []
    assert not {"this", "antigravity"} & (set(sys.modules) - before)


def unpacked(packed: Any) -> Any:
    return Unpacker(None, [], known_class).unpack(packed)


def test_values_of_known_classes_are_made() -> None:
    assert unpacked([values.ENUM, f"{HERE}:Colour", 1]) is Colour.RED
    assert unpacked([values.STRUCT, f"{HERE}:Point", 1.0, None]) == Point(x=1.0)
    assert unpacked([values.DATACLASS, f"{HERE}:Record", "a", None, 7]) == Record("a")
    assert unpacked([values.NAMED, f"{HERE}:Pair", 1, 2]) == Pair(1, 2)
    assert type(unpacked([values.NAMED, f"{HERE}:Pair", 1, 2])) is Pair


KINDS = [values.STRUCT, values.DATACLASS, values.NAMED, values.ENUM, values.MODEL]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "os:system",
        "builtins:eval",
        "builtins:type",
        "builtins:object",
        f"{__name__}:Trap",
        f"{__name__}:sys.modules",
        "tests.device.residents.lab:Probe",
        "json:decoder.JSONDecodeError",
        "",
        ":",
        "nothing",
        "\x00:x",
    ],
)
def test_a_class_of_another_kind_is_refused(kind: int, name: str, tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    with pytest.raises((TypeError, ImportError)):
        unpacked([kind, name, [values.LIST, ["touch", str(flag)]]])
    assert not flag.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_code_is_refused(kind: int) -> None:
    code = cloudpickle.dumps(Bomb())
    with pytest.raises(TypeError, match="was sent with code; a context host sends no code"):
        unpacked([kind, ["some id", code], 1])
    with pytest.raises(ImportError, match="made in the context host itself"):
        unpacked([kind, ["some id", b""], 1])
    for name in (["id"], ["id", b"", 1], [b"id", b""], [["id"], b""], 5, None, {"a": 1}):
        with pytest.raises(TypeError, match="does not name a class"):
            unpacked([kind, name, 1])
    with pytest.raises(TypeError, match="is not a"):
        unpacked([kind, [identity(Trap), b""], 1])


def test_nothing_is_imported() -> None:
    sys.modules.pop("this", None)
    with pytest.raises(ImportError, match="class this:Zen is not loaded in the application; import this before"):
        unpacked([values.ENUM, "this:Zen", 1])
    assert rebuilt({"class": "this:Zen", "args": [], "state": {}}) is None


def test_a_lazy_module_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = types.ModuleType("lazy_module")
    lazy.__getattr__ = lambda name: ran.append(name) or Colour  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    with pytest.raises(ImportError, match="lazy_module:Colour is not loaded"):
        known_class("lazy_module:Colour")


@pytest.mark.parametrize(
    "lengths, data",
    [
        ([5], b"abc"),
        ([-6], b"abc"),
        ([2], b"abc"),
        ([2**62, 2**62, 2**62, 2**62 + 3], b"abc"),
        ([~2], b"\xff\xff"),
        ([-(2**63)], b""),
    ],
)
def test_an_array_of_texts_whose_lengths_are_wrong_is_refused(lengths: list[int], data: bytes) -> None:
    array = np.array(lengths, np.int64)
    packed = [values.TEXTS, [len(lengths)], [values.ARRAY, "<i8", [len(lengths)], array.tobytes()], data]
    with pytest.raises(ValueError, match=r"bytes|utf-8"):
        unpacked(packed)


@pytest.mark.parametrize("dtype", ["O", "|O", "O8", "[('a', '|O')]", "('|O', (2,))", "[('a', [('b', 'O')])]"])
def test_an_array_of_addresses_is_refused(dtype: str) -> None:
    memory = np.full(64, 0x41, np.uint8)

    class Own:
        def array(self, dtype: Any, shape: tuple[int, ...], offset: int) -> Any:
            return memory.view(dtype).reshape(shape)

    for packed in (
        [values.ARRAY, dtype, [1], b"A" * 8],
        [values.ARRAY, dtype, [0], b""],
        [values.NUMBER, dtype, b"A" * 8],
        [values.STAGED, dtype, [8], 0],
    ):
        with pytest.raises(TypeError, match="holds Python objects"):
            Unpacker(Own(), [], known_class).unpack(packed)


@pytest.mark.parametrize(
    "attributes",
    [
        {"class": ["id", cloudpickle.dumps(Bomb())], "args": [], "state": {}},
        {"class": "subprocess:Popen", "args": [["true"]], "state": {}},
        {"class": f"{__name__}:Trap", "args": [], "state": {}},
        {"class": "builtins:SystemExit", "args": [3], "state": {}},
        {"class": "builtins:KeyboardInterrupt", "args": [], "state": {}},
        {"class": "tests.device.residents.lab:OwnError", "args": [[1, 2]], "state": {}},
        {"class": "tests.device.residents.lab:OwnError", "args": 5, "state": {}},
        {"class": "tests.device.residents.lab:OwnError", "args": ["a"], "state": 5},
        {"class": "tests.device.residents.lab:OwnError", "args": ["a"]},
        {"class": 5, "args": [], "state": {}},
        {"class": "builtins:UnicodeDecodeError", "args": ["x"], "state": {}},
        {"class": "builtins:ExceptionGroup", "args": ["x"], "state": {}},
    ],
)
def test_an_exception_that_cannot_be_made_safely_is_a_remote_error(attributes: dict[str, Any]) -> None:
    given = {"type": "x.Y", "message": "why", "traceback": "where", **attributes}
    error = as_error(FailureMessage(1, "RemoteError", "why", given))
    assert type(error) is cb.RemoteError
    assert (error.type, error.message, error.traceback) == ("x.Y", "why", "where")


def test_attributes_of_an_exception_hide_no_method() -> None:
    state = {
        "add_note": 5,
        "with_traceback": 5,
        "args": 5,
        "__class__": 5,
        "__notes__": 5,
        "not a name": 5,
        "number": 7,
    }
    given = {"class": "tests.device.residents.lab:OwnError", "args": ["bad!"], "state": state}
    error = as_error(FailureMessage(1, "RemoteError", "", given, notes=["a note"]))
    assert isinstance(error, OwnError)
    assert vars(error) == {"number": 7, "__notes__": ["a note"]}
    assert error.args == ("bad!",)


class Standing:
    """A caller of which only what a result needs is there."""

    def ended(self, end: CallEnd) -> None: ...

    def ref(self, *wire: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        encode([[values.ENUM, "subprocess:Popen", 1], []], "test"),
        encode([[99], []], "test"),
        encode([[values.LIST], []], "test"),
        encode([0, 10, True], "test"),
        encode([[values.REF, 5], []], "test"),
        encode([[values.ARRAY, "", [1], b"x"], []], "test"),
        encode([[values.BYTEARRAY, 1 << 40], []], "test"),
        b"\x91" * 100_000 + b"\x90",
    ],
)
async def test_a_malformed_result_is_that_calls_error(value: bytes) -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        reply: cb.Reply[Any] = cb.Reply(dev._actor.port)
        end = CallEnd(Standing(), None, reply)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="5 is not an encoded result"):
            end._answer(5)
        end._answer(value)
        with pytest.raises(cb.ReplyError, match="the result cannot be put together here: "):
            await reply


async def test_arrays_and_room_that_are_not_the_calls() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        caller = probe._residents.caller
        for wire in ((5, 0), ("a", 0), (1.5, 0), (-5, "0"), (True, 0)):
            with pytest.raises(ValueError, match="not an array of a resident actor"):
                caller.ref(*wire, 0, [1], [1])  # type: ignore[arg-type]
        reply = probe.call(Probe.add, 1)
        for nbytes in (0, -5):
            with pytest.raises(ProtocolError, match=f"{nbytes} bytes for call"):
                caller.room(RoomWanted(reply._op, nbytes))
        assert caller.room(RoomWanted(reply._op, 300)).place != []
        with pytest.raises(ProtocolError, match="300 bytes for call"):  # a second slot would never be given back
            caller.room(RoomWanted(reply._op, 300))
        await dev.drain()
