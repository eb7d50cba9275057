"""The generators themselves: known answers, and cuRAND's host generators where libcurand is installed."""

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu.rng.fills import LONG_SLICE, SLICE
from callboard.backends.cpu.rng.mrg32k3a import mrg32k3a_words
from callboard.backends.cpu.rng.philox import element_blocks, philox64_words, philox_blocks, philox_words
from callboard.backends.cpu.rng.sobol import sobol_words
from callboard.backends.cpu.rng.sources import Twister
from callboard.backends.cpu.rng.xorwow import xorwow_words
from callboard.kernel.rng import RngFillBits
from callboard.testing.session import LibrarySession

# Counter, key and block, from the known answers of Random123 1.14 (philox 4x32 10).
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0_A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, block", KNOWN)
def test_philox_gives_the_known_answers(counter: tuple[int, ...], key: int, block: tuple[int, ...]) -> None:
    words: Any = tuple(np.array([c], np.uint64) for c in counter)
    assert tuple(philox_blocks(words, key)[0]) == block


def test_no_element_shares_a_block_with_a_stream_or_another_element() -> None:
    positions = np.array([0, 1, 2**32 - 1, 2**32, 2**62], np.uint64)
    blocks = [element_blocks(5, positions, turn, second) for turn in (0, 1) for second in (False, True)]
    words = np.concatenate([*(b.reshape(-1) for b in blocks), philox_words(5, 0, 4000)])
    assert np.unique(words).size >= words.size - 3


def test_the_twister_is_matsumotos_and_nishimuras() -> None:
    """Seed 5489 is their default; 4123659995 is the 10000th word, as C++ has it (rand.predef)."""
    twister = Twister()
    assert twister.words(5489, 0, 10_000)[9999] == 4123659995
    assert twister.words(5489, 9999, 1)[0] == 4123659995
    long = np.random.RandomState([3, 1]).randint(0, 2**32, 5, dtype=np.uint32)
    np.testing.assert_array_equal(twister.words(2**32 + 3, 0, 5), long)


def test_philox64_begins_anywhere() -> None:
    whole = philox64_words(9, 0, 64)
    for at in range(20):
        np.testing.assert_array_equal(philox64_words(9, at, 11), whole[at : at + 11])


@pytest.mark.parametrize(
    "kind, words", [("philox", philox_words), ("xorwow", xorwow_words), ("mrg32k3a", mrg32k3a_words)]
)
def test_slices_meet(kind: str, words: Any) -> None:
    """Of a fill that several threads share."""
    count = (LONG_SLICE if kind != "philox" else SLICE) + 77
    with LibrarySession("cpu") as session:
        out = session.empty(count, "u32")
        for _ in range(2):  # the second begins where lanes have been before
            got = session.get(session.submit(RngFillBits(out=out, kind=kind, seed=5, position=3)))
            np.testing.assert_array_equal(got, words(5, 3, count))


# -- cuRAND's host generators, which need neither driver nor GPU -------------------------------------------------------


def _libcurand() -> Any:
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for path in sorted(Path(folder).glob("**/libcurand.so.10")):
            library = ctypes.CDLL(str(path))
            pointer, whole = ctypes.c_void_p, ctypes.c_ulonglong
            library.curandCreateGeneratorHost.argtypes = (pointer, ctypes.c_int)
            library.curandSetPseudoRandomGeneratorSeed.argtypes = (pointer, whole)
            library.curandSetGeneratorOffset.argtypes = (pointer, whole)
            library.curandSetQuasiRandomGeneratorDimensions.argtypes = (pointer, ctypes.c_uint)
            library.curandGenerate.argtypes = (pointer, pointer, ctypes.c_size_t)
            library.curandGenerateLongLong.argtypes = (pointer, pointer, ctypes.c_size_t)
            library.curandDestroyGenerator.argtypes = (pointer,)
            return library
    return None


LIBCURAND = _libcurand()
parity = pytest.mark.skipif(LIBCURAND is None, reason="libcurand.so.10 (nvidia-curand) is not installed")


def curand(
    code: int, count: int, position: int, seed: int | None = None, dimensions: int = 0, wide: bool = False
) -> Any:
    handle = ctypes.c_void_p()
    assert LIBCURAND.curandCreateGeneratorHost(ctypes.byref(handle), code) == 0
    if seed is not None:
        assert LIBCURAND.curandSetPseudoRandomGeneratorSeed(handle, seed) == 0
    if dimensions:
        assert LIBCURAND.curandSetQuasiRandomGeneratorDimensions(handle, dimensions) == 0
    assert LIBCURAND.curandSetGeneratorOffset(handle, position) == 0
    out = np.empty(count, np.uint64 if wide else np.uint32)
    generate = LIBCURAND.curandGenerateLongLong if wide else LIBCURAND.curandGenerate
    assert generate(handle, out.ctypes.data, count) == 0
    LIBCURAND.curandDestroyGenerator(handle)
    return out


@parity
@pytest.mark.parametrize("seed", [0, 1234, 2**63 + 12345678901])
@pytest.mark.parametrize("position, count", [(0, 1000), (3, 9000), (12345, 5000)])
@pytest.mark.parametrize(
    "code, words",
    [(161, philox_words), (101, xorwow_words), (121, mrg32k3a_words)],
    ids=["philox", "xorwow", "mrg32k3a"],
)
def test_words_are_those_of_curand(code: int, words: Any, position: int, count: int, seed: int) -> None:
    np.testing.assert_array_equal(words(seed, position, count), curand(code, count, position, seed))


@parity
@pytest.mark.parametrize("code, words", [(161, philox_words), (101, xorwow_words)], ids=["philox", "xorwow"])
def test_words_far_away_are_those_of_curand(code: int, words: Any) -> None:
    np.testing.assert_array_equal(words(7, 2**40 + 5, 500), curand(code, 500, 2**40 + 5, 7))


@parity
@pytest.mark.parametrize("bits, code", [(32, 201), (64, 203)])
def test_points_are_those_of_curand(bits: int, code: int) -> None:
    want = curand(code, 40 * 6, 1000, dimensions=6, wide=bits == 64).reshape(6, 40).T
    np.testing.assert_array_equal(sobol_words(False, bits, 0, 1000, 40, 6), want)
