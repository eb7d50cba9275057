"""Exceptions as data: whatever users' code raises can be sent, in few bytes, and comes back as what it was."""

import dataclasses
import pathlib
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.residents.exceptions import MAX_FAILURE, described

FILE = "caf\udce9.txt"
"""A file name that is not UTF-8, as ``os.listdir`` gives it."""


class Hostile(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit(1)


class HostileMemory(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("no text")


class Unfinished(Exception):
    """An attribute that cannot be read."""

    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise KeyError("no notes")


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("slotted")
        self.code = code


OddlyNamed = type("OddlyNamed", (Exception,), {"__module__": FILE})


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    what: str


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as e:
        return e


def sent(error: BaseException) -> tuple[Exception, int]:
    """What the application makes of it, and the bytes that it takes."""
    body = msgspec.msgpack.encode(described(1, raised(error)))
    return as_error(msgspec.msgpack.decode(body, type=FailureMessage)), len(body)


def with_state(error: Exception, **state: Any) -> Exception:
    vars(error).update(state)
    return error


def with_notes(error: Exception, *notes: str) -> Exception:
    for note in notes:
        error.add_note(note)
    return error


ODD: list[tuple[BaseException, type[Exception]]] = [
    (ValueError(FILE), ValueError),
    (ValueError("x" * 20_000_000), ValueError),
    (ValueError(*["x" * 10_000] * 20), cb.RemoteError),  # the arguments together are too long
    (ValueError(*range(100_000)), cb.RemoteError),
    (ValueError(np.float64(1.5), np.str_("text")), ValueError),
    (ValueError(1 << 80), cb.RemoteError),
    (with_state(ValueError("state"), big=1 << 80, name=FILE, long="x" * 20_000_000), ValueError),
    (with_state(ValueError("many"), **{f"field{i}": i for i in range(10_000)}), ValueError),
    (with_notes(ValueError("notes"), FILE, *["x" * 20_000_000] * 2), ValueError),
    (with_notes(ValueError("notes"), *map(str, range(10_000))), ValueError),
    (UnicodeDecodeError("utf-8", b"\xff" * 20_000_000, 0, 1, "why"), UnicodeDecodeError),
    (UnicodeEncodeError("utf-8", FILE, 3, 4, "surrogates not allowed"), UnicodeEncodeError),
    (cb.ReplyError(FILE), cb.ReplyError),
    (cb.ReplyError("x" * 20_000_000), cb.ReplyError),
    (cb.LibraryError(FILE, FILE, 1 << 80), cb.LibraryError),
    (MemoryError(FILE), cb.OutOfMemory),
    (MemoryError("x" * 20_000_000), cb.OutOfMemory),
    (OddlyNamed("odd"), OddlyNamed),
    (KeyboardInterrupt(FILE), cb.RemoteError),
    (Hostile("hostile"), Hostile),
    (HostileMemory("hostile"), HostileMemory),
    (Unfinished("unfinished"), cb.RemoteError),
    (Frozen("frozen"), Frozen),
]


@pytest.mark.parametrize("error, kind", ODD, ids=[f"{i}-{type(e).__name__!a}" for i, (e, _) in enumerate(ODD)])
def test_whatever_is_raised_can_be_sent_and_is_short(error: BaseException, kind: type[Exception]) -> None:
    back, nbytes = sent(error)
    assert type(back) is kind
    assert nbytes <= MAX_FAILURE + 1000


def test_what_is_left_out_is_counted() -> None:
    back, _ = sent(ValueError("begin" + "x" * 20_000_000 + "end"))
    assert str(back).startswith("begin")
    assert str(back).endswith("end")
    assert "[... 19,991,816 bytes left out ...]" in str(back)
    back, _ = sent(UnicodeDecodeError("utf-8", b"\xff" * 20_000_000, 0, 1, "why"))
    assert "19,991,808 bytes of its arguments were left out" in back.__notes__


def test_surrogates_are_escaped() -> None:
    assert sent(ValueError(FILE))[0].args == ("caf\\udce9.txt",)


@pytest.mark.parametrize(
    "error, names",
    [
        (FileNotFoundError(2, "No such file or directory", "gone.txt"), ("errno", "strerror", "filename")),
        (OSError(18, "Invalid cross-device link", "a", None, "b"), ("filename", "filename2")),
        (PermissionError(13, "Permission denied", b"\xff"), ("filename",)),
        (ImportError("no", name="mod", path="/mod.py"), ("name", "path")),
        (Slotted(5), ("code",)),
        (OSError("plain"), ("filename",)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else None,
)
def test_attributes_beside_the_dictionary_are_kept(error: Exception, names: tuple[str, ...]) -> None:
    back, _ = sent(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert [getattr(back, name) for name in names] == [getattr(error, name) for name in names]


def test_a_path_arrives_as_text() -> None:
    back, _ = sent(FileNotFoundError(2, "No such file or directory", pathlib.Path("a/b")))
    assert isinstance(back, FileNotFoundError)
    assert back.filename == "a/b"
    back, _ = sent(FileNotFoundError(2, "No such file or directory", FILE))
    assert isinstance(back, FileNotFoundError)
    assert back.filename == "caf\\udce9.txt"
