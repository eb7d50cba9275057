"""The table of functions, and how their arguments are bound: by NumPy's parameters, converted once, in one place."""

import ast
import functools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy

from callboard.core.dtype import DType, as_dtype
from callboard.core.ref import GpuRef
from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed
from callboard.numpylike.signatures import SIGNATURES

__all__ = [
    "TABLE",
    "Array",
    "Arrays",
    "Dtype",
    "Maybe",
    "Row",
    "bound",
    "check_cast",
    "dtype_of",
    "function",
    "row",
    "written",
]

F = TypeVar("F", bound=Callable[..., Any])

IGNORED = frozenset({"order", "subok", "like", "device", "kind", "casting", "optimize", "check_valid", "tol", "self"})
"""Parameters that change no value: the layout in memory, classes, the algorithm."""


def dtype_of(value: Any) -> DType | None:
    """The dtype that ``value`` names to NumPy (``"i8"`` has 8 bytes), else to callboard (``"bf16"``); None for None."""
    if value is None or type(value) is DType:
        return value
    try:
        named = numpy.dtype(value)
    except TypeError:
        return as_dtype(value)
    return as_dtype(named)


def _array(np: Any, value: Any) -> Any:
    return value if isinstance(value, GpuRef) else np.asarray(value)


def _arrays(np: Any, value: Any) -> Any:
    if not hasattr(value, "__len__"):
        raise TypeError('arrays to stack must be passed as a "sequence" type such as list or tuple.')
    return [_array(np, one) for one in value]


Array = Annotated[Any, _array]
"""A parameter that takes an array, or what makes one."""
Arrays = Annotated[Any, _arrays]
"""A parameter that takes a sequence of them."""
Maybe = Annotated[Any, lambda np, value: None if value is None else _array(np, value)]
"""A parameter that takes an array or None."""
Dtype = Annotated[Any, lambda np, value: dtype_of(value)]
"""A parameter that takes a dtype or None."""


class Row(NamedTuple):
    """A function of the table.

    Attributes:
        path: Its name in NumPy: ``"linalg.norm"``.
        made: Computes it; its first parameter is the namespace, the others are those of NumPy's that it reads.
        converters: Conversions by parameter.
        names: NumPy's parameters that may be given by position.
        defaults: NumPy's parameters that may be left out, with their values.
        keywords: NumPy's parameters that may be given by name.
        several: The parameter that takes all further arguments by position, or None.
        others: Further arguments by name are passed on.
    """

    path: str
    made: Callable[..., Any]
    converters: dict[str, Callable[[Any, Any], Any]]
    names: tuple[str, ...]
    defaults: dict[str, Any]
    keywords: frozenset[str]
    several: str | None
    others: bool


TABLE: dict[str, Callable[..., Any]] = {}
"""What makes each function, by its path in NumPy."""


def function(section: str = "", *names: str) -> Callable[[F], F]:
    """Enter a function in the table under its own name, and under further names.

    Args:
        section: ``"linalg"``, ``"fft"``, ``"random"``; the main namespace when empty.
        names: Further names.
    """

    def enter(made: F) -> F:
        for name in (made.__name__, *names):
            TABLE[f"{section}.{name}" if section else name] = made
        return made

    return enter


@functools.cache
def row(path: str) -> Row:
    """The row of a function; its signature is read on first use."""
    made = TABLE[path]
    names, defaults, keywords, several, others = _parameters(path)
    own = made.__code__.co_varnames[: made.__code__.co_argcount + made.__code__.co_kwonlyargcount]
    optional = own[len(own) - len(made.__defaults__ or ()) :]
    unknown = set(own[1:]) - {*names, *defaults, *keywords, *optional}
    if unknown:
        raise TypeError(f"{path}: NumPy has no parameters {sorted(unknown)}")
    found = {name: hint.__metadata__[0] for name, hint in made.__annotations__.items() if hasattr(hint, "__metadata__")}
    return Row(path, made, found, names, defaults, keywords, several, others)


def _parameters(path: str) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str], str | None, bool]:
    tree = ast.parse(f"def f{SIGNATURES[path]}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    given = tree.args
    first = [one.arg for one in given.posonlyargs]
    both = [one.arg for one in given.args]
    names = [name for name in (*first, *both) if name != "self"]
    defaults = dict(zip(reversed(names), map(ast.literal_eval, reversed(given.defaults)), strict=False))
    only = {one.arg: value for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)}
    defaults |= {name: ast.literal_eval(value) for name, value in only.items() if value is not None}
    several = given.vararg.arg if given.vararg else None
    return tuple(names), defaults, frozenset({*both, *only} - {"self"}), several, given.kwarg is not None


def bound(np: Any, path: str) -> Callable[..., Any]:
    """The function of this path for one namespace.

    Its parameters are NumPy's. Those that the row does not read are refused unless they have their defaults; ``out`` is
    written here.
    """
    path, made, converters, names, defaults, keywords, several, others = row(path)
    code = made.__code__
    read = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    call = f"np.{path}"
    places = {name: at for at, name in enumerate(names)}
    takes_out = "out" in keywords and "out" not in read

    def called(*args: Any, **kwargs: Any) -> Any:
        rest: tuple[Any, ...] = ()
        if len(args) > len(names):
            if several is None:
                raise TypeError(f"{call}() takes at most {len(names)} positional arguments ({len(args)} given)")
            args, rest = args[: len(names)], args[len(names) :]
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in keywords and not others:
                raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
            if name in given:
                raise TypeError(f"{call}() got multiple values for argument {name!r}")
            given[name] = value
        out = given.pop("out", None) if takes_out else None
        casting = given.get("casting", "same_kind")
        values = {}
        for name in read:
            if name in given:
                values[name] = given.pop(name)
            elif name in defaults:
                values[name] = defaults[name]
            elif name in places or name in keywords:
                raise TypeError(f"{call}() missing required argument {name!r} (pos {places.get(name, -1) + 1})")
        passed = (
            {name: given.pop(name) for name in list(given) if name not in {*keywords, *names, *IGNORED}}
            if others
            else {}
        )
        for name, value in given.items():
            if name not in IGNORED and value is not None and value is not defaults.get(name):
                if isinstance(value, bool | int | str) and value == defaults.get(name):
                    continue
                raise TypeError(f"{call}: the parameter {name} is not supported, and it is {value!r:.60}; leave it out")
        try:
            for name, convert in converters.items():
                if name in values:
                    values[name] = convert(np, values[name])
                elif name == several:
                    rest = tuple(convert(np, one) for one in rest)
            if rest:  # after the named ones, which are then given by position, too
                rest = (*(values.pop(name) for name in names if name in values), *rest)
            found = made(np, *rest, **values, **passed)
            return found if out is None else written(np, out, found, casting)
        except ABOUT_ARGUMENTS as e:
            renamed(e, call)
            raise

    called.__name__ = called.__qualname__ = path.rpartition(".")[2]
    called.__doc__ = (made.__doc__ or "") + f"\n\nThe parameters are NumPy's: ``{path}{SIGNATURES[path]}``."
    called.__text_signature__ = SIGNATURES[path]  # type: ignore[attr-defined] # read by inspect
    return called


def written(np: Any, out: Any, found: Any, casting: str = "same_kind") -> Any:
    """``out``, with the result written into it."""
    if isinstance(out, tuple):
        out = out[0]
    if not isinstance(out, GpuRef):
        raise TypeError(f"out is {type(out).__name__}; return arrays must be of ArrayType, on the device")
    found = _array(np, found)
    if out.shape != found.shape:
        raise ValueError(
            f"out has wrong shape: it is {out.layout!r}, and the result is {found.layout!r}; both must have one shape"
        )
    check_cast(found.dtype, out.dtype, casting)
    out[...] = found
    return out


def check_cast(have: DType, to: DType, casting: str = "same_kind") -> None:
    """Refuse a conversion that NumPy's rule ``casting`` does not allow."""
    try:
        fine = numpy.can_cast(have.np, to.np, casting)  # type: ignore[arg-type] # a name of a rule
    except TypeError:
        fine = True  # dtypes that NumPy has no rules for
    if not fine:
        raise TypeError(f"cannot cast from {have} to {to} with casting rule {casting!r}; x.astype(dtype) converts")
