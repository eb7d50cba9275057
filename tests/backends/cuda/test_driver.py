import ctypes
from typing import Any

import pytest

from callboard.backends.cuda.driver import CHECKED, HOT, NEWER, Driver, Memcpy2D
from callboard.core.errors import BackendUnavailable, ContextPoisoned, OutOfMemory, UnsupportedOp


class Function:
    """A function of a shared library, as ctypes shows it."""

    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.argtypes: Any = None
        self.restype: Any = None
        self.errcheck: Any = None

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes)
        return self.errcheck(self.answer, self, arguments) if self.errcheck is not None else self.answer


class Library:
    def __init__(self, **answers: int) -> None:
        self.missing: set[str] = set()
        self._answers = answers
        self._functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        if name == "cuGetErrorString":
            return self._words
        return self._functions.setdefault(name, Function(self._answers.get(name, 0)))

    @staticmethod
    def _words(code: Any, text: Any) -> int:
        text._obj.value = f"words about {code.value}".encode()
        return 0


def test_every_function_is_annotated_and_bound() -> None:
    driver = Driver(Library())
    names = set(Driver.__annotations__)
    assert names == set(CHECKED) | set(NEWER) | set(HOT)
    assert not set(CHECKED) & set(HOT)
    for name, (_, arguments) in {**CHECKED, **NEWER, **HOT}.items():
        assert getattr(driver, name).argtypes == arguments
        assert getattr(driver, name).restype is ctypes.c_int


def test_checked_functions_raise_and_hot_ones_answer() -> None:
    driver = Driver(Library(cuMemAlloc_v2=2, cuStreamSynchronize=700, cuEventQuery=600))
    with pytest.raises(OutOfMemory, match=r"cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY \(2\): words about 2"):
        driver.mem_alloc(None, 1)
    with pytest.raises(ContextPoisoned, match="words about 700"):
        driver.stream_synchronize(1)
    assert driver.event_query(1) == 600
    driver.check(0, "nothing")
    with pytest.raises(ContextPoisoned):
        driver.check(719, "cuLaunchKernel")


def test_an_old_driver() -> None:
    library = Library()
    library.missing.add("cuLaunchHostFunc")
    with pytest.raises(BackendUnavailable, match="has no cuLaunchHostFunc; install a driver"):
        Driver(library)


def test_the_structure_of_pitched_copies_is_that_of_cuda_h() -> None:
    assert ctypes.sizeof(Memcpy2D) == 128
    assert (Memcpy2D.src_device.offset, Memcpy2D.src_pitch.offset) == (32, 48)
    assert (Memcpy2D.dst_type.offset, Memcpy2D.dst_device.offset, Memcpy2D.dst_pitch.offset) == (72, 88, 104)
    assert (Memcpy2D.width.offset, Memcpy2D.height.offset) == (112, 120)


def test_what_an_older_driver_lacks_is_refused_when_it_is_called() -> None:
    library = Library()
    library.missing = {symbol for symbol, _ in NEWER.values()}
    driver = Driver(library)
    for name in NEWER:
        with pytest.raises(UnsupportedOp, match="R555"):
            getattr(driver, name)(0)
