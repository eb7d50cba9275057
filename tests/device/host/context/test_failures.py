"""Errors cross the wire as plain data and arrive with the same class and contents."""

import inspect

import msgspec
import pytest

from callboard.core import errors
from callboard.device.protocol.failures import as_error, as_failure
from callboard.device.protocol.messages import FailureMessage

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.AccelError)]


def over_the_wire(failure: FailureMessage) -> FailureMessage:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=FailureMessage)


@pytest.mark.parametrize("cls", [c for c in CLASSES if c is not errors.RemoteError], ids=lambda c: c.__name__)
def test_every_error_of_ours_comes_back_as_its_class(cls: type[errors.AccelError]) -> None:
    error = cls("what happened")
    error.generation = 5
    error.add_note("where")
    back = as_error(over_the_wire(as_failure(3, error)))
    assert type(back) is cls
    assert str(back) == "what happened"
    assert back.generation == 5
    assert back.__notes__ == ["where"]


def test_codes_reasons_and_libraries_come_along() -> None:
    back = as_error(over_the_wire(as_failure(1, errors.LibraryError("no", "cublas", 14))))
    assert isinstance(back, errors.LibraryError)
    assert (back.lib, back.code) == ("cublas", 14)
    stale = as_error(over_the_wire(as_failure(1, errors.GpuRefStale("x: freed", "freed"))))
    assert isinstance(stale, errors.GpuRefStale)
    assert stale.reason == "freed"


@pytest.mark.parametrize("error", [ValueError("v"), ZeroDivisionError("z"), KeyError("k"), TimeoutError("t")])
def test_builtin_errors_stay_what_they_are(error: Exception) -> None:
    back = as_error(over_the_wire(as_failure(1, error)))
    assert type(back) is type(error)


def test_an_unknown_class_becomes_a_remote_error_with_its_traceback() -> None:
    class Strange(Exception):
        pass

    def raise_it() -> None:
        raise Strange("so strange")

    with pytest.raises(Strange) as caught:
        raise_it()
    back = as_error(over_the_wire(as_failure(1, caught.value)))
    assert isinstance(back, errors.RemoteError)
    assert back.type.endswith("Strange")
    assert back.message == "so strange"
    assert "raise_it" in back.traceback


def test_an_exit_is_not_raised_in_the_application() -> None:
    for error in (SystemExit(3), KeyboardInterrupt()):
        assert isinstance(as_error(over_the_wire(as_failure(1, error))), errors.RemoteError)
    forged = as_error(FailureMessage(1, "SystemExit", "3", {}))
    assert isinstance(forged, errors.RemoteError)


def test_an_error_that_cannot_be_made_again_is_a_remote_error() -> None:
    for failure in (
        FailureMessage(1, "UnicodeDecodeError", "its constructor takes five arguments", {}),
        FailureMessage(1, "RemoteError", "odd", {"class": "builtins:ValueError"}),
    ):
        back = as_error(over_the_wire(failure))
        assert isinstance(back, errors.RemoteError)
        assert failure.message in str(back)
