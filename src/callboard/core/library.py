"""``Library``: how a backend executes the ops of one compute library.

A subclass has a table of the ops whose launch is a call of their plan::

    class CudaBlas(Library):
        table = {
            Gemm: Entry(lambda library, op: level3.gemm(library.cublas, op), inline=True),
        }

and methods, found by decorator, for the others::

        @prepares(Copy)  # once per signature: dtype, shapes, strides, settings
        def plan_copy(self, op): ...  # returns the plan; may raise UnsupportedOp


        @launches(Copy, dtypes=FLOATS)  # each call: enqueue only
        def copy(self, stream, plan, x, out): ...
"""

import abc
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    "entries",
    "launches",
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
    """A row of a library's table: an op whose launch is a call of its plan.

    Attributes:
        plan: ``plan(library, op)`` makes the plan (see :class:`Prepare`), which :meth:`Library.launch` calls.
        inline: See :func:`prepares`.
        sizes: The plan's ``query_size`` finds the extents of outputs (see :func:`sizes`).
        always: ``query_size`` is called even if all extents are known; see :func:`sizes`.
        dtypes, refuses, captures: See :func:`launches`.
    """

    plan: Callable[[Any, Any], Any]
    inline: bool = False
    sizes: bool = False
    always: bool | Callable[[AnyOp], bool] = False
    dtypes: frozenset[DType] | None = None
    refuses: Callable[[Any], str | None] | None = None
    captures: bool = True


def entries(plans: Mapping[type[AnyOp], Callable[[Any, Any], Any]], **settings: Any) -> dict[type[AnyOp], Entry]:
    """Rows that differ in how the plan is made only."""
    return {op: Entry(plan, **settings) for op, plan in plans.items()}


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
    table: ClassVar[Mapping[type[AnyOp], Entry]] = {}
    """The ops whose launch is a call of their plan."""
    prepare_table: ClassVar[dict[type[AnyOp], Prepare]] = {}
    size_table: ClassVar[dict[type[AnyOp], SizeQuery]] = {}
    launch_table: ClassVar[dict[type[AnyOp], Launch]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.prepare_table = dict(cls.prepare_table)
        cls.size_table = dict(cls.size_table)
        cls.launch_table = dict(cls.launch_table)
        rows = vars(cls).get("table", {})
        cls.table = {op: entry for base in reversed(cls.__mro__) for op, entry in vars(base).get("table", {}).items()}
        for op, entry in rows.items():
            cls.prepare_table[op] = Prepare("prepare", entry.inline)
            if entry.sizes:
                cls.size_table[op] = SizeQuery("query_size", entry.always)
            cls.launch_table[op] = Launch("launch", entry.dtypes, entry.refuses, entry.captures)
        for attribute, method in vars(cls).items():
            for op in getattr(method, "__prepares__", ((), False))[0]:
                cls.prepare_table[op] = Prepare(attribute, method.__prepares__[1])
            for op in getattr(method, "__sizes__", ((), False))[0]:
                _check_arguments(op, method, "sizes", ["self", "plan"])
                cls.size_table[op] = SizeQuery(attribute, method.__sizes__[1])
            for op in getattr(method, "__launches__", ((),))[0]:
                _check_arguments(op, method, "launches", ["self", "stream", "plan"])
                cls.launch_table[op] = Launch(attribute, *method.__launches__[1:])

    def __init__(self, device: "AccelDevice", stream: "AccelStream") -> None:
        self.device = device
        self.stream = stream

    @property
    def detail(self) -> str:
        """Describe the implementation in use, for the doctor, if it depends on installed packages."""
        return ""

    def warm_up(self) -> None:
        """Do the one-time work of a first op (lazy module loading); called by a hot standby."""

    def close(self) -> None:
        """Destroy the handle; all work of the stream is done."""

    # -- ops of the table ----------------------------------------------------------------------------------------------

    def prepare(self, op: AnyOp) -> Any:
        """Make the plan of an op of the table."""
        return self.table[type(op)].plan(self, op)

    def query_size(self, plan: Any, *dynamic: Any) -> Extents:
        """Find the extents of its outputs, by the plan, on the library's stream."""
        extents: Extents = plan.query_size(self.stream, *dynamic)
        return extents

    def launch(self, stream: Any, plan: Any, *dynamic: Any) -> "Status | None":
        """Enqueue it: call the plan with the stream and the fields of the message, in that order."""
        status: Status | None = plan(stream, *dynamic)
        return status

    # -- what is supported ---------------------------------------------------------------------------------------------

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
        return launch.refuses(op) if launch.refuses is not None else None


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


def _check_arguments(op: type[AnyOp], method: Callable[..., Any], does: str, first: list[str]) -> None:
    wanted = [*first, *(f.name for f in info_of(op).dynamic)]
    parameters = inspect.signature(method).parameters
    got = list(parameters)
    passes_on = got[:-1] == first and parameters[got[-1]].kind is inspect.Parameter.VAR_POSITIONAL
    if got != wanted and not passes_on:
        raise TypeError(
            f"{method.__qualname__} {does} {op.__name__} and must take ({', '.join(wanted)}), not ({', '.join(got)})"
        )
