"""The generators themselves: known answers, and cuRAND's host generators where libcurand is installed."""

import copy
import ctypes
import importlib.resources
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu.rng.fills import LONG_SLICE, SLICE
from callboard.backends.cpu.rng.philox import element_blocks, philox64_words, philox_blocks, philox_words
from callboard.backends.cpu.rng.sobol import sobol_words
from callboard.backends.cpu.rng.sources import Walk, sources
from callboard.backends.cpu.rng.states import States
from callboard.kernel.rng import RngFillBits
from callboard.testing.session import LibrarySession

WORDS = sources(States(max_states=0))
xorwow_words, mrg32k3a_words = WORDS["xorwow", "default"], WORDS["mrg32k3a", "default"]

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
    words = sources(States())["mt19937", "default"]
    assert words(5489, 0, 10_000)[9999] == 4123659995
    assert words(5489, 9999, 1)[0] == 4123659995
    long = np.random.RandomState([3, 1]).randint(0, 2**32, 5, dtype=np.uint32)
    np.testing.assert_array_equal(words(2**32 + 3, 0, 5), long)


def mtgp32_words(seed: int, twister: int, count: int) -> list[int]:
    """One twister of MTGP32, one word at a time: the recursion of the paper."""
    file = importlib.resources.files("callboard.backends.cpu") / "data" / "mtgp32.npy"
    place, left, right, *entries = (int(n) for n in np.load(str(file))[:, twister])
    twist, temper = entries[:4], entries[4:]

    def of(table: list[int], index: int) -> int:
        found = 0
        for bit in range(4):
            found ^= table[bit] * (index >> bit & 1)
        return found

    mask = 0xFFFFFFFF
    hidden = of(twist, 4) ^ of(twist, 8) << 16 & mask
    filling = hidden + (hidden >> 16) & mask
    filling = filling + (filling >> 8) & 0xFF
    state = [(seed ^ seed >> 32) + twister + 1 & mask]
    for i in range(1, 351):
        kept = hidden if i == 1 else filling * 0x01010101
        state.append(kept ^ (1812433253 * (state[-1] ^ state[-1] >> 30) + i & mask))
    found = []
    for i in range(count):
        x = state[i] & 0xFFF80000 ^ state[i + 1]
        x ^= x << left & mask
        y = x ^ state[i + place] >> right
        state.append(y ^ of(twist, y & 15))
        t = state[i + place - 1]
        t ^= t >> 16
        found.append(state[-1] ^ of(temper, (t ^ t >> 8) & 15))
    return found


@pytest.mark.parametrize("ordering, twisters", [("default", 192), ("legacy", 64)])
def test_mtgp32_is_saitos_and_matsumotos(ordering: Any, twisters: int) -> None:
    """Rows of 256 words a twister; a state of 351 words is renewed in two steps."""
    seed = 2**40 + 77
    words = sources(States())["mtgp32", ordering](seed, 0, 3 * 256 * twisters).reshape(3, twisters, 256)
    for twister in (0, 1, 40, twisters - 1):
        assert words[:, twister].reshape(-1).tolist() == mtgp32_words(seed, twister, 3 * 256)


@pytest.mark.parametrize("kind, ordering", [("mt19937", "default"), ("mtgp32", "default"), ("mtgp32", "legacy")])
def test_what_cannot_skip_walks(kind: str, ordering: Any) -> None:
    """Forwards, over rows, to where it has been, and with another seed between."""
    words = sources(States())[kind, ordering]
    whole = words(3, 0, 200_000)
    for position, count in ((5, 10), (15, 0), (15, 49_137), (49_152, 1), (150_000, 50_000), (49_151, 2), (0, 1)):
        np.testing.assert_array_equal(words(3, position, count), whole[position : position + count])
        words(4, 0, count % 7)
        np.testing.assert_array_equal(words(3, position, count), whole[position : position + count])


def test_walks_of_orders_do_not_disturb_each_other() -> None:
    words = sources(States())
    default, legacy = words["mtgp32", "default"], words["mtgp32", "legacy"]
    want = legacy(1, 0, 50), default(1, 0, 50)
    got = [(legacy(1, at, 10), default(1, at, 10)) for at in range(0, 50, 10)]
    for i, whole in enumerate(want):
        np.testing.assert_array_equal(np.concatenate([pair[i] for pair in got]), whole)


def test_after_a_failure_the_place_is_not_trusted() -> None:
    """Memory may run out when words have been passed over."""

    class Counting:
        def __init__(self, seed: int) -> None:
            self.at = seed

        nbytes = 8

        def copy(self) -> Any:
            return copy.copy(self)

        def discard(self, count: int) -> None:
            self.at += count

        def draw(self, count: int) -> Any:
            self.at += count
            if count > 100:
                raise MemoryError
            return np.arange(self.at - count, self.at, dtype=np.uint32)

    walk = Walk(("mt19937", "default"), Counting, States())
    assert walk.words(1000, 5, 2).tolist() == [1005, 1006]
    with pytest.raises(MemoryError):
        walk.words(1000, 7, 101)
    assert walk.words(1000, 7, 2).tolist() == [1007, 1008]


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
            library.curandSetGeneratorOrdering.argtypes = (pointer, ctypes.c_int)
            library.curandSetQuasiRandomGeneratorDimensions.argtypes = (pointer, ctypes.c_uint)
            library.curandGenerate.argtypes = (pointer, pointer, ctypes.c_size_t)
            library.curandGenerateLongLong.argtypes = (pointer, pointer, ctypes.c_size_t)
            library.curandDestroyGenerator.argtypes = (pointer,)
            return library
    return None


LIBCURAND = _libcurand()
parity = pytest.mark.skipif(LIBCURAND is None, reason="libcurand.so.10 (nvidia-curand) is not installed")


def curand(
    code: int,
    count: int,
    position: int,
    seed: int | None = None,
    dimensions: int = 0,
    wide: bool = False,
    ordering: int | None = None,
) -> Any:
    handle = ctypes.c_void_p()
    assert LIBCURAND.curandCreateGeneratorHost(ctypes.byref(handle), code) == 0
    if seed is not None:
        assert LIBCURAND.curandSetPseudoRandomGeneratorSeed(handle, seed) == 0
    if dimensions:
        assert LIBCURAND.curandSetQuasiRandomGeneratorDimensions(handle, dimensions) == 0
    if ordering is not None:
        assert LIBCURAND.curandSetGeneratorOrdering(handle, ordering) == 0
    if position:
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
@pytest.mark.parametrize("seed", [0, 1234, 2**63 + 12345678901])
@pytest.mark.parametrize("ordering, code", [("default", 101), ("legacy", 103)])
def test_words_of_mtgp32_are_those_of_curand(ordering: Any, code: int, seed: int) -> None:
    got = sources(States())["mtgp32", ordering](seed, 0, 200_000)
    np.testing.assert_array_equal(got, curand(141, 200_000, 0, seed, ordering=code))


@parity
@pytest.mark.parametrize("code, words", [(161, philox_words), (101, xorwow_words)], ids=["philox", "xorwow"])
def test_words_far_away_are_those_of_curand(code: int, words: Any) -> None:
    np.testing.assert_array_equal(words(7, 2**40 + 5, 500), curand(code, 500, 2**40 + 5, 7))


@parity
@pytest.mark.parametrize("bits, code", [(32, 201), (64, 203)])
def test_points_are_those_of_curand(bits: int, code: int) -> None:
    want = curand(code, 40 * 6, 1000, dimensions=6, wide=bits == 64).reshape(6, 40).T
    np.testing.assert_array_equal(sobol_words(False, bits, 0, 1000, 40, 6), want)
