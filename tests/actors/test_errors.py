"""The error tree: one root, and everything survives pickling."""

import copy
import inspect
import pickle

import pytest

from callboard.actors import AccelError, AskTimeout, MailboxFull, ReplyError
from callboard.actors import errors as module

CLASSES = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, AccelError)]


class Picky(ReplyError):
    """A user's error with a constructor of its own."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}", op="blas.gemm")
        self.code = code
        self.hint = hint


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("clone", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_pickle_with_their_attributes(cls: type[AccelError], clone: object) -> None:
    error = cls("it happened", device="cuda:0", generation=7, op="blas.gemm")
    error.add_note("a note")
    assert callable(clone)
    again = clone(error)
    assert type(again) is cls
    assert str(again) == "it happened"
    assert (again.device, again.generation, again.op, again.__notes__) == ("cuda:0", 7, "blas.gemm", ["a note"])


@pytest.mark.parametrize("cls", CLASSES)
def test_attributes_are_none_by_default(cls: type[AccelError]) -> None:
    error = cls("x")
    assert (error.device, error.generation, error.op) == (None, None, None)
    assert isinstance(cls.retryable, bool)


def test_any_constructor_pickles() -> None:
    again = pickle.loads(pickle.dumps(Picky(3, hint="try later")))
    assert (str(again), again.code, again.hint, again.op) == ("code 3", 3, "try later", "blas.gemm")


def test_ask_timeout_is_a_timeout_error_and_pickles() -> None:
    error = pickle.loads(pickle.dumps(AskTimeout.of("/t/a", 2.5, "Read", "/t/b")))
    assert isinstance(error, TimeoutError)
    assert (error.target, error.timeout, error.message_type, error.sender) == ("/t/a", 2.5, "Read", "/t/b")
    assert str(error) == "/t/a did not answer Read within 2.5 s (asked by /t/b)"


def test_retryable_is_a_property_of_the_class() -> None:
    assert (AccelError.retryable, MailboxFull.retryable, AskTimeout.retryable) == (False, True, True)
