"""Which tests of NumPy are chosen, and the reasons for which others are not."""

import re
from typing import NamedTuple

__all__ = ["FILES", "RULES", "Rule", "reason_of"]

FILES: dict[str, str] = {
    "_core/tests/test_numeric.py": "",
    "_core/tests/test_multiarray.py": (
        r"TestMethods|TestCreation|TestZeroRank|TestAssignment|TestArgmax|TestArgmin|TestMinMax|TestClip|TestPutmask|"
        r"TestTake|TestLexsort|TestStats|TestVdot|TestDot|TestMatmul|TestMatmulOperator|TestInner|TestChoose|TestWhere|"
        r"TestRepeat|TestBinop|TestConversion|TestBool|TestHash|TestArange|TestArgsort|TestSearchsorted|TestCompress"
    ),
    "_core/tests/test_umath.py": "",
    "_core/tests/test_shape_base.py": "",
    "_core/tests/test_function_base.py": "",
    "lib/tests/test_function_base.py": "",
    "lib/tests/test_index_tricks.py": "",
    "lib/tests/test_shape_base.py": "",
    "lib/tests/test_twodim_base.py": "",
    "lib/tests/test_arraysetops.py": "",
    "lib/tests/test_nanfunctions.py": "",
    "lib/tests/test_histograms.py": "",
    "lib/tests/test_arraypad.py": "",
    "lib/tests/test_polynomial.py": "",
    "linalg/tests/test_linalg.py": "",
    "fft/tests/test_pocketfft.py": "",
    "fft/tests/test_helper.py": "",
    "random/tests/test_generator_mt19937.py": "",
    "random/tests/test_random.py": "",
}
"""Files below NumPy's package, and the classes of theirs that are read; all when empty."""


class Rule(NamedTuple):
    """Tests that are not chosen.

    Attributes:
        reason: Why.
        source: A pattern of the test's name or its source.
    """

    reason: str
    source: str


RULES = (
    Rule(
        "dtypes that no device holds: objects, texts, dates, records, long doubles",
        r"object|dtype=['\"]?O|'O'|\"O\"|\[?'[?bhilqpBHILQPefdgFDG]*[gGO]|datetime|timedelta|[\"'][|<>=]?[SUMmVa]\d|"
        r"void|np\.str_|bytes_|\.str\b|rec\.|recarray|longdouble|clongdouble|float128|complex256|typecodes|"
        r"np\.dtype\(\[|dtype=\[|Decimal|Fraction|fields|string|\blongcomplex|np\.unicode|float_types|half\b.*long|"
        r"sctypes|str\(|b'|bytes\(|[\"']M8|structured",
    ),
    Rule(
        "subclasses, masked arrays, matrices and protocols of NumPy's arrays",
        r"class \w+\((np\.)?ndarray|matrix\(|np\.ma\b|mask_?array|subok|__array_|subclass|ndarray\.__|np\.poly1d|"
        r"PhysicalQuantity|asmatrix|MyNDArray|SubClass|RealSubclass|__numpy_ufunc__|\.view\((?!\))|poly1d|Subclass|"
        r"bmat|_core\.|Foo|class \w+:|class \w+\(",
    ),
    Rule(
        "memory: flags, strides in bytes, layouts, the buffer protocol, overlaps, alignment",
        r"\.flags|order=|\.strides|\.base\b|\.data\b|ctypes|may_share|shares_memory|refcount|\.resize\(|fortran|"
        r"byteswap|newbyteorder|memmap|nditer|overlap|align|memoryview|as_strided|C_CONTIG|F_CONTIG|out\[::|"
        r"getbuffer|\.itemset|setflags|order\b|contiguous|nbytes|byte_order|noncontig|_stride|stride",
    ),
    Rule(
        "warnings and floating-point flags: a device raises none",
        r"warns|Warning|errstate\([^)]*raise|seterr|simplefilter|FloatingPointError|DeprecationWarning|fpexception|"
        r"isinstance\(.*np\.(integer|bool|float64)",
    ),
    Rule(
        "NumPy's internals, threads, files, Python's own limits",
        r"pickle|_testbuffer|tracemalloc|thread|getsizeof|__doc__|_umath_tests|sys\.maxsize|gc\.|weakref|tempfile|"
        r"subprocess|sliding_window_view|ufunc_struct|requires_memory|_UFUNC_API|SIMD|array_function|nonlocal|"
        r"np\.lib\.|\.nin\b|\.nout\b|\.types\b|resolve_dtypes|signature|np\.ufunc|np\.ndarray\(|deepcopy|mtrand|"
        r"bit_generator|"
        r"getsize|BitGenerator|\.state|_bit_gen|legacy|_legacy|nan_bits|doctest|legacy_seeding",
    ),
    Rule(
        "names that are left out, with their reasons in docs/coverage.md",
        r"vectorize|frompyfunc|np\.gcd|np\.lcm|gcd|lcm|packbits|unpackbits|ndenumerate|array2string|array_repr|"
        r"np\.broadcast\b(?!_)|np\.save|np\.load|mintypecode|typename|np\.fromstring|fromfile|npyio|nested_iters|"
        r"polydiv|"
        r"reduceat|vonmises|zipf|logseries|hypergeometric|negative_binomial|noncentral|np\.require|binary_repr|"
        r"base_repr|"
        r"TestLCM|TestGCD|set_state|get_state|random\.bytes|\.bytes\(|spawn|Vectorize|weights=.*quantile|linear_ramp",
    ),
    Rule(
        "results are refs, also single numbers, and a failure of values is raised where they are read",
        r"type\([^)]*\)|isscalar|is_scalar|is (not )?(True|False|np\.True_|np\.False_)\b|LinAlgError|"
        r"assert_raises\(np\.linalg",
    ),
    Rule(
        "tests whose set-up makes objects, flags or numbers of a seed; parameters of one NumPy; writing to x.flat",
        r"assert_array_strict_equal|check_function\(|check_like_function|_generate_non_native|fastclip|"
        r"TestZeroRank|TestStats|TestDot\b|ndmax|\.flat\[|test_argwhere_nd",
    ),
    Rule(
        "the numbers of a seed: the distributions are NumPy's, the numbers are not",
        r"desired = |def test_repeatability|desired\b|TestRandomDist\b.*(?!args)|self\.seed|def test_reset|hashlib|md5|"
        r"np\.random\.seed\(self|MT19937|RandomState\(|sfc|TestSeed|same_seed|TestSetState",
    ),
)
"""In order: the first rule that holds for a test names the reason."""


def reason_of(name: str, source: str) -> str | None:
    """The reason for which a test is not chosen, or None."""
    text = f"{name}\n{source}"
    return next((rule.reason for rule in RULES if re.search(rule.source, text)), None)
