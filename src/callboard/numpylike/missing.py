"""Names of NumPy that ``dev.np`` lacks: why, and the nearest thing that exists."""

from collections.abc import Iterable, Mapping

from callboard.core.ref.suggestions import unknown_name

__all__ = ["LEFT_OUT", "left_out", "unknown"]

LEFT_OUT: Mapping[str, tuple[str, str]] = {
    "texts and objects: no device holds them": (
        "x.get(), then numpy",
        (
            "array2string array_repr array_str base_repr "
            "binary_repr format_float_positional format_float_scientific char "
            "strings str_ bytes_ object_ character flexible void"
        ),
    ),
    "dates: no device holds them": (
        "integers of a unit of yours",
        (
            "busday_count busday_offset busdaycalendar datetime64 "
            "timedelta64 datetime_as_string datetime_data is_busday "
            "isnat"
        ),
    ),
    "records, matrices and masked arrays: a ref has one dtype and no mask": (
        "one array per field, 2-d arrays, np.where",
        "rec recarray record matrix asmatrix bmat ma",
    ),
    "files: values pass through the host": (
        "np.asarray(numpy.load(file)), numpy.save(file, x.get())",
        "load loadtxt save savetxt savez savez_compressed fromfile fromregex fromstring genfromtxt memmap DataSource",
    ),
    "Python functions of single elements: each would be an op": (
        "cb.elementwise(expression), or np.where",
        "vectorize frompyfunc nditer nested_iters ndenumerate flatiter broadcast",
    ),
    "longer than 64 bits: no device holds them": ("np.float64", "longdouble clongdouble float128 complex256"),
    "not built: no parts, no demand": (
        "x.get(), then numpy",
        "gcd lcm packbits unpackbits require mintypecode typename emath lib polynomial poly1d polydiv",
    ),
    "of NumPy's own build, state or C code": (
        "numpy",
        (
            "f2py ctypeslib core test show_config show_runtime "
            "get_include getbufsize setbufsize geterr geterrcall seterr "
            "seterrcall info sctypeDict typecodes ScalarType little_endian dtypes ufunc typing testing exceptions"
        ),
    ),
    "random: a shape parameter per element, or a rejection loop, which no fill has": (
        "numpy.random, then np.asarray",
        (
            "random.vonmises random.zipf random.logseries random.hypergeometric random.negative_binomial "
            "random.noncentral_chisquare random.noncentral_f random.multivariate_hypergeometric random.bytes"
        ),
    ),
    "random: the state is a seed and a position": (
        "dev.rng.philox(seed).position",
        (
            "random.get_state random.set_state random.get_bit_generator random.set_bit_generator random.BitGenerator "
            "random.MT19937 random.PCG64 random.PCG64DXSM random.Philox random.SFC64 random.SeedSequence random.mtrand "
            "random.bit_generator"
        ),
    ),
}
"""By reason: what to use in their place, and the names."""


def left_out() -> dict[str, tuple[str, str]]:
    """The reason and the alternative of each name that is left out."""
    return {name: (why, use) for why, (use, names) in LEFT_OUT.items() for name in names.split()}


def unknown(section: str, name: str, there: Iterable[str]) -> AttributeError:
    """The error for a name that a namespace lacks.

    Args:
        section: ``""``, ``"linalg"``, ``"fft"`` or ``"random"``.
        name: The name.
        there: The names of the namespace, for the nearest of them.
    """
    own = f"np.{section}" if section else "np"
    found = left_out().get(f"{section}.{name}" if section else name)
    if found is not None:
        why, use = found
        return AttributeError(f"{own} has no {name!r} ({why}); use {use}", name=name)
    return unknown_name(f"{own} has no {name!r}", name, there)
