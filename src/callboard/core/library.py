"""``Library``: how a backend executes the ops of one compute library.

Most ops are registered at the function or class that makes their plan, in a module beside the library's. Their launch
is a call of the plan::

    @plans(Syr, Spr, inline=True)  # in level2.py
    def symmetric_rank_1(cublas, op): ...


    class CudaBlas(Library):
        modules = modules_of(__name__)

Methods of the library register the others::

        @prepares(Copy)  # once per signature: dtype, shapes, strides, settings
        def plan_copy(self, op): ...  # returns the plan; may raise UnsupportedOp


        @launches(Copy, dtypes=FLOATS)  # each call: enqueue only
        def copy(self, stream, plan, x, out): ...
"""

import abc
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from callboard.core import plugins
from callboard.core.dtype import DTYPES, DType
from callboard.core.op import Op, info_of

if TYPE_CHECKING:
    from callboard.core.backend import AccelDevice, AccelStream, Status

__all__ = [
    "Entry",
    "Extents",
    "Launch",
    "Library",
    "LibraryTable",
    "Prepare",
    "SizeQuery",
    "WouldBlock",
    "launches",
    "modules_of",
    "ops_of",
    "plans",
    "prepares",
    "sizes",
]

F = TypeVar("F", bound=Callable[..., Any])
AnyOp = Op[Any, Any]
Extents = Sequence[Sequence[int]]
"""The shape of each output whose extents depend on data, in order of declaration."""


class WouldBlock(Exception):
    """From an inline prepare that finds that it has to compile first: it is run again, on the host's helper thread.

    Raised only on the thread that :attr:`AccelDevice.non_blocking_thread` names.
    """


class Prepare(NamedTuple):
    """Declares the function that makes plans.

    ``method(self, op) -> plan`` gets the op with placeholders for operands and 0 for numbers. ``inline`` plans are
    cheap (no I/O, no compile, no blocking vendor call) and are made on the admitting thread. Other plans, and those
    that raise :class:`WouldBlock`, are made on the host's helper thread, while the op is parked.

    A plan may have a method ``close()``: it is called once, on the admitting thread, when the plan has been dropped and
    the stream has passed its last user, and before the library is closed. It may have an attribute ``captures``: False
    if this plan cannot be recorded in a graph although others of its op can.
    """

    method: str
    inline: bool


class SizeQuery(NamedTuple):
    """Work before a launch (see :func:`sizes`)."""

    method: str
    always: bool | Callable[[AnyOp], bool]

    def due(self, op: AnyOp) -> bool:
        """True if it is called although all extents are known."""
        return self.always(op) if callable(self.always) else self.always


class Launch(NamedTuple):
    """Declares the function that enqueues calls.

    ``method(self, stream, plan, *dynamic)`` takes one argument per operand and scalar, in order of declaration and
    under the field's name (or ``*dynamic`` for all, if the plan takes them). An argument is the address of an operand
    (an int), a number, None for an optional field left out, a sequence of addresses or numbers for a tuple of them
    (None for an empty one), or the addresses of the operands of a struct operand (whose settings are in the plan). The
    plan is the op itself if there is no prepare. The method only enqueues: no allocation, no synchronisation, no handle
    creation. It may return a :class:`~callboard.core.backend.Status`, which reports, once the stream has passed it,
    whether the op failed (a solver's info).
    """

    method: str
    dtypes: frozenset[DType] | None
    """Accepted dtypes of the first operand; None when the op does not restrict them."""
    refuses: Callable[[AnyOp], str | None] | None
    captures: bool
    """True if the vendor's calls can be recorded in a graph."""


class Entry(NamedTuple):
    """Declares ops whose launch is a call of their plan (see :func:`plans`)."""

    ops: tuple[type[AnyOp], ...]
    inline: bool | None
    sizes: bool
    always: bool | Callable[[AnyOp], bool]
    dtypes: frozenset[DType] | None
    refuses: Callable[[AnyOp], str | None] | None
    captures: bool

    def records(self, method: str, inline: bool, by: str) -> "Iterator[tuple[str, type[AnyOp], Any, str]]":
        """Yield the records of each op (see :meth:`Library._declared`); ``method`` of the library makes the plans."""
        for op in self.ops:
            yield "prepare_table", op, Prepare(method, inline if self.inline is None else self.inline), by
            if self.sizes:
                yield "size_table", op, SizeQuery("query_size", self.always), by
            yield "launch_table", op, Launch("launch", self.dtypes, self.refuses, self.captures), by


def plans(
    *ops: type[AnyOp],
    inline: bool | None = None,
    sizes: bool = False,
    always: bool | Callable[[Any], bool] = False,
    dtypes: Collection[DType] | None = None,
    refuses: Callable[[Any], str | None] | None = None,
    captures: bool = True,
) -> Callable[[F], F]:
    """Register the function, class or method that makes the plans of these ops.

    A function or class in one of the library's :attr:`Library.modules` is called by :meth:`Library.prepare`; a method
    of the library is called with the op. The plan is called with the stream and the fields of the message, in that
    order (see :meth:`Library.launch`).

    Args:
        ops: Message classes.
        inline: See :class:`Prepare`; None: as :attr:`Library.inline` says.
        sizes: The plan's ``query_size`` finds the extents of outputs (see :func:`sizes`).
        always: ``query_size`` is called even if all extents are known; see :func:`sizes`.
        dtypes, refuses, captures: See :func:`launches`.
    """
    entry = Entry(ops, inline, sizes, always, None if dtypes is None else frozenset(dtypes), refuses, captures)

    def mark(make: F) -> F:
        make.__plans__ = (*vars(make).get("__plans__", ()), entry)  # type: ignore[attr-defined]
        return make

    return mark


def prepares(*ops: type[AnyOp], inline: bool = False) -> Callable[[F], F]:
    """Declare the method that makes the plans of these ops (see :class:`Prepare`)."""

    def mark(method: F) -> F:
        method.__prepares__ = (ops, inline)  # type: ignore[attr-defined]
        return method

    return mark


def sizes(*ops: type[AnyOp], always: bool | Callable[[Any], bool] = False) -> Callable[[F], F]:
    """Declare the method that finds the extents of these ops' outputs where ``infer`` gives only bounds.

    ``method(self, plan, *dynamic) -> Extents`` gets the arguments of the launch, but None for outputs that are still to
    be allocated. It runs before the launch, on the host's helper thread, when the operands are ready and the library's
    stream is idle; the op is parked meanwhile, and with it all ops of the library. The method may therefore block, read
    the operands, enqueue on the library's stream and wait for it, and store data for the launch in the plan. A sized
    call is never recorded in a graph. An op whose outputs were all given (its capacity form) is sized only with
    ``always``.

    Args:
        ops: Message classes.
        always: Call the method also when all extents are known, without using its result: for the part of an op that
            cannot be enqueued and blocks the calling thread, which must not be the admitting one. May be a function of
            the op (with placeholders).
    """

    def mark(method: F) -> F:
        method.__sizes__ = ops, always  # type: ignore[attr-defined]
        return method

    return mark


def launches(
    *ops: type[AnyOp],
    dtypes: Collection[DType] | None = None,
    refuses: Callable[[Any], str | None] | None = None,
    captures: bool = True,
) -> Callable[[F], F]:
    """Declare the method that enqueues these ops (see :class:`Launch`).

    Args:
        ops: Message classes.
        dtypes: Accepted dtypes of the first operand; None accepts every dtype that the message declares.
        refuses: Says why an op (with placeholders) is not supported, None if it is. Pure: it runs in the application
            too.
        captures: False if the vendor's calls cannot be recorded in a graph.
    """

    def mark(method: F) -> F:
        method.__launches__ = (ops, None if dtypes is None else frozenset(dtypes), refuses, captures)  # type: ignore[attr-defined]
        return method

    return mark


class Library(abc.ABC):
    """The executing half of a library actor: a vendor handle, its stream and its workspaces.

    A library is created, used and closed on the admitting thread. ``__init__`` raises :class:`BackendUnavailable` when
    a package or symbol is missing. Vendor packages are imported in ``__init__``, not at the top of the module.
    """

    name: ClassVar[str]
    """The library name, ``"blas"``."""
    max_plans: ClassVar[int | None] = None
    """Plans of this library that a host keeps at most; those used least recently give way. None: some thousands."""
    engines: ClassVar[Mapping[type[AnyOp], str]] = {}
    """The engine of each op, in words, if a library has more than one; named in ``docs/coverage.md``."""
    refused: ClassVar[Mapping[type[AnyOp], str]] = {}
    """Ops that are deliberately never executed here, with the reason."""
    lanes: ClassVar[Mapping[type[AnyOp], str]] = {}
    """Ops with a stream of their own, and its name. They run on another engine of the device, such as copies to the
    host, and so do not delay the ops on the library's stream."""
    modules: ClassVar[Sequence[ModuleType]] = ()
    """The modules whose functions and classes are registered with :func:`plans` (see :func:`modules_of`)."""
    brief: ClassVar[bool] = False
    """True if the time of its ops depends on their layouts alone, and none of them waits or runs a user's code: short
    ones may run on the admitting thread (:attr:`AccelStream.at_once`)."""
    inline: ClassVar[bool] = False
    """True if plans are made inline (see :class:`Prepare`) unless they are registered otherwise."""
    makers: ClassVar[dict[type[AnyOp], Callable[..., Any]]] = {}
    """The functions and classes that make plans, by op; collected from :attr:`modules`."""
    prepare_table: ClassVar[dict[type[AnyOp], Prepare]] = {}
    size_table: ClassVar[dict[type[AnyOp], SizeQuery]] = {}
    launch_table: ClassVar[dict[type[AnyOp], Launch]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for table in ("prepare_table", "size_table", "launch_table", "makers"):
            setattr(cls, table, dict(getattr(cls, table)))
        where: dict[tuple[str, type[AnyOp]], str] = {}
        for table, op, record, by in cls._declared():
            if (table, op) in where:
                raise TypeError(f"{cls.__qualname__}: {where[table, op]} and {by} both serve {op.__name__}; keep one")
            where[table, op] = by
            getattr(cls, table)[op] = record

    @classmethod
    def _declared(cls) -> Iterator[tuple[str, type[AnyOp], Any, str]]:
        """Yield each record of this class: its table, the op, the record, and the name of what was decorated."""
        for module in vars(cls).get("modules", ()):
            for name, make in _made_in(module):
                for entry in vars(make).get("__plans__", ()):
                    yield from (("makers", op, make, f"{module.__name__}.{name}") for op in entry.ops)
                    yield from entry.records("prepare", cls.inline, f"{module.__name__}.{name}")
        for name, method in vars(cls).items():
            for entry in getattr(method, "__plans__", ()):
                yield from entry.records(name, cls.inline, name)
            ops, inline = getattr(method, "__prepares__", ((), False))
            yield from (("prepare_table", op, Prepare(name, inline), name) for op in ops)
            ops, always = getattr(method, "__sizes__", ((), False))
            for op in ops:
                _check_arguments(op, method, "sizes", ["self", "plan"])
                yield "size_table", op, SizeQuery(name, always), name
            ops, *settings = getattr(method, "__launches__", ((),))
            for op in ops:
                _check_arguments(op, method, "launches", ["self", "stream", "plan"])
                yield "launch_table", op, Launch(name, *settings), name

    def __init__(self, device: "AccelDevice", stream: "AccelStream") -> None:
        self.device = device
        self.stream = stream

    @classmethod
    def is_brief(cls, op: AnyOp) -> bool:
        """Whether :attr:`brief` holds for an op."""
        return cls.brief

    @property
    def detail(self) -> str:
        """Describe the implementation in use, for the doctor, if it depends on installed packages."""
        return ""

    def warm_up(self) -> None:
        """Do the one-time work of a first op (lazy module loading); called by a hot standby."""

    def close(self) -> None:
        """Destroy the handle; all work of the stream is done."""

    # -- ops whose plans are registered --------------------------------------------------------------------------------

    def prepare(self, op: AnyOp) -> Any:
        """Make the plan of an op, by the function or class in :attr:`makers`, which is given the library and the op."""
        return self.makers[type(op)](self, op)

    def query_size(self, plan: Any, *dynamic: Any) -> Extents:
        """Find the extents of its outputs, by the plan, on the library's stream."""
        extents: Extents = plan.query_size(self.stream, *dynamic)
        return extents

    def launch(self, stream: Any, plan: Any, *dynamic: Any) -> "Status | None":
        """Enqueue it: call the plan with the stream and the fields of the message, in that order."""
        status: Status | None = plan(stream, *dynamic)
        return status

    # -- what is supported ---------------------------------------------------------------------------------------------

    @staticmethod
    def refuses(op: AnyOp) -> str | None:
        """The reason why an op is not supported, for all ops of the library (see :func:`launches`); None if it is."""
        return None

    @classmethod
    def dtypes_of(cls, op: type[AnyOp]) -> list[DType]:
        """The dtypes that the first operand of an op may have here, in the order of the table of dtypes."""
        here = cls.launch_table[op].dtypes
        return [d for d in DTYPES.values() if d in (op.dtypes or DTYPES.values()) and (here is None or d in here)]

    @classmethod
    def why_not(cls, op: AnyOp) -> str | None:
        """The reason why this op (with these layouts and settings) is not supported, None if it is."""
        launch = cls.launch_table.get(type(op))
        if launch is None:
            return cls.refused.get(type(op), "no implementation")
        if launch.dtypes is not None:
            operands = info_of(type(op)).split(op).operands
            if operands and operands[0].dtype not in launch.dtypes:
                return f"dtype {operands[0].dtype}; supported are {', '.join(sorted(d.name for d in launch.dtypes))}"
        return (launch.refuses(op) if launch.refuses is not None else None) or cls.refuses(op)


class LibraryTable(Mapping[str, type[Library]]):
    """The library classes of a backend by name, each imported on first use.

    A context host that is started in the middle of a loss answers that much sooner; ``values()`` imports all. Beside
    the backend's own there are those of other distributions, by entry point (:mod:`callboard.core.plugins`).

    Args:
        package: Package of the backend, which has a module or package for each of its libraries.
        classes: Name of the class in it, by library.
    """

    def __init__(self, package: str, **classes: str) -> None:
        self._group = f"{plugins.GROUP}.{package.rpartition('.')[2]}"
        self._own = {name: f"{package}.{name}:{cls}" for name, cls in classes.items()}

    def __getitem__(self, name: str) -> type[Library]:
        cls: type[Library] = plugins.load(self._own.get(name) or plugins.targets(self._group)[name])
        return cls

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in plugins.targets(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter({**plugins.targets(self._group), **self._own})

    def __len__(self) -> int:
        return len(list(iter(self)))


def modules_of(library: str) -> tuple[ModuleType, ...]:
    """Import and return the modules beside the one of a library, and those in packages beside it.

    Args:
        library: ``__name__`` of the library's module; the others are of the same package, and import no vendor package
            before they are called.
    """
    package = library.rpartition(".")[0]
    beside = pkgutil.walk_packages(import_module(package).__path__, f"{package}.")
    return tuple(import_module(module.name) for module in beside if module.name != library)


def ops_of(*modules: ModuleType) -> list[type[AnyOp]]:
    """The ops whose plans are registered in modules, in order of definition."""
    made = (make for module in modules for _, make in _made_in(module))
    return [op for make in made for entry in vars(make).get("__plans__", ()) for op in entry.ops]


def _made_in(module: ModuleType) -> Iterator[tuple[str, FunctionType | type]]:
    """Yield the functions and classes that a module defines, each once, in order of definition."""
    seen: set[int] = set()
    for name, made in vars(module).items():
        if isinstance(made, FunctionType | type) and made.__module__ == module.__name__ and id(made) not in seen:
            seen.add(id(made))
            yield name, made


def _check_arguments(op: type[AnyOp], method: Callable[..., Any], does: str, first: list[str]) -> None:
    wanted = [*first, *(f.name for f in info_of(op).dynamic)]
    parameters = inspect.signature(method).parameters
    got = list(parameters)
    passes_on = got[:-1] == first and parameters[got[-1]].kind is inspect.Parameter.VAR_POSITIONAL
    if got != wanted and not passes_on:
        raise TypeError(
            f"{method.__qualname__} {does} {op.__name__} and must take ({', '.join(wanted)}), not ({', '.join(got)})"
        )
