import copy
import pickle
from typing import Any

import pytest

from callboard.core import errors
from callboard.core.errors import AccelError, ContextPoisoned, GpuRefStale, LibraryError, RemoteError, Suspect

CLASSES = [
    cls for name in errors.__all__ if isinstance(cls := getattr(errors, name), type) and issubclass(cls, Exception)
]
MADE: list[AccelError] = [
    ContextPoisoned("lost", [Suspect("BlasActor", "blas.gemm", "key", "a.py:3")]),
    GpuRefStale("a ref", "freed"),
    LibraryError("status 13", "cublas", 13),
    errors.DriverError("status 700", 700),
    RemoteError("app.Odd", "text", "Traceback …"),
    errors.OutOfMemory("8 GiB", device="cuda:0", generation=5, op="memory.empty"),
]


@pytest.mark.parametrize("cls", CLASSES)
def test_one_tree(cls: type[AccelError]) -> None:
    assert issubclass(cls, AccelError)


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickle", "copy"])
@pytest.mark.parametrize("error", [*MADE, *(cls() for cls in CLASSES)], ids=lambda e: type(e).__name__)
def test_errors_travel_with_their_attributes(error: AccelError, again: Any) -> None:
    error.device, error.generation, error.op = "cuda:1", 7, "blas.gemm"
    error.__notes__ = ["operand a, made at x.py:9"]
    got = again(error)
    assert type(got) is type(error)
    assert str(got) == str(error)
    assert (got.args, got.__dict__) == (error.args, error.__dict__)
    assert (got.device, got.generation, got.op) == ("cuda:1", 7, "blas.gemm")
    assert got.__notes__ == ["operand a, made at x.py:9"]


@pytest.mark.parametrize(
    "cls, builtin",
    [
        (errors.OutOfMemory, MemoryError),
        (errors.ShapeError, ValueError),
        (errors.DeviceMismatch, ValueError),
        (errors.UnsupportedOp, NotImplementedError),
        (errors.BackendUnavailable, ImportError),
        (errors.AskTimeout, TimeoutError),
        (errors.ContextPoisoned, errors.ContextLost),
        (errors.GpuRefStale, errors.ContextLost),
        (errors.DeviceStopped, errors.Unrecoverable),
    ],
)
def test_except_clauses_of_the_language_work(cls: type[AccelError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        raise cls("text")


def test_what_may_be_repeated() -> None:
    assert {cls for cls in CLASSES if cls.retryable} == {
        *(errors.ContextLost, errors.ContextPoisoned, errors.GpuRefStale, errors.WorldLost),
        *(errors.MailboxFull, errors.AskTimeout),
    }


def test_texts() -> None:
    assert str(GpuRefStale("f32[3] on cpu:0: freed", "freed")) == "f32[3] on cpu:0: freed"
    assert GpuRefStale("freed").reason == "freed"
    assert str(GpuRefStale(reason="freed")) == "freed"
    assert str(RemoteError("app.Odd", "text")) == "app.Odd: text"
