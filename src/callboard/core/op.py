"""``Op``: a message that a library executes on a device."""

from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from callboard.actors.messages import MessageMeta, Request
from callboard.core.dtype import DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.operand import Operand, Role, StructOperand, parts_of
from callboard.core.opinfo import OpInfo

__all__ = ["OPS", "Fence", "Op", "Origin", "Outputs", "Repeated", "StructOutputs", "outputs_of"]

A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

Outputs = Mapping[str, Layout]
"""The layout of each ``Out`` field that the op will make (or has been given).

An ``Out`` field that is not named has no place in this call: it is not made, and must have been left None.
"""
StructOutputs = Mapping[str, Layout | tuple[Layout, ...] | StructOperand]
"""The same, for ops with struct operands, whose operands are placeholders, or with tuples: an op allocates all outputs
of a ``tuple[Out, ...]`` or none."""

Fence = Literal["behind", "between", "aside", "ahead"]
Origin = Literal["managed", "shared", "opened"]

OPS: dict[str, type["Op[Any, Any]"]] = {}
"""Every op by tag, as sent to a context host."""

CLASS_ATTRIBUTES = frozenset(
    {
        *("label", "returns", "results", "value", "overlaps", "variadic", "hidden", "dtypes", "answers"),
        *("fence", "keeps", "memory"),
    }
)


class OpMeta(MessageMeta):
    """Registers each op class under its tag."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, *, tag: str | None = None
    ) -> "OpMeta":
        namespace["__doc__"] = _documented(namespace.get("__doc__"), bases)
        cls = super().__new__(mcls, name, bases, namespace, tag=tag)
        if tag is not None:
            if tag in OPS and OPS[tag].__qualname__ != cls.__qualname__:
                raise TypeError(f"tag {tag!r} of {name} is taken by {OPS[tag].__qualname__}")
            if taken := CLASS_ATTRIBUTES.intersection(cls.__struct_fields__):
                raise TypeError(f"{name}: {sorted(taken)} declare how an op is answered; rename the fields")
            OPS[tag] = cls  # type: ignore[assignment]
        return cls  # type: ignore[return-value]


def _documented(doc: str | None, bases: tuple[type, ...]) -> str | None:
    """A docstring; one that describes no arguments is given those of a base that declares the fields of a family."""
    if not doc or _ARGUMENTS in doc:
        return doc
    _, found, arguments = "".join(cleandoc(base.__doc__ or "") for base in bases).partition(_ARGUMENTS)
    return f"{cleandoc(doc)}\n\n{found}{arguments}" if found else doc


_ARGUMENTS = "Args:\n"


class Op(Request[A_contra, R_co], Generic[A_contra, R_co], metaclass=OpMeta):
    """A request to the library actor ``A``, answered with ``R``, whose operands live on a device.

    A subclass declares its operands with roles (``a: In``), its numbers as ``Scalar`` and its settings as plain types,
    gives a tag ``"<library>.<op>"`` and implements :meth:`infer`. Messages of one family have a base without a tag that
    declares the fields, describes them and infers. A message is checked when it is made: operands are
    :class:`GpuRef`, numbers become ``float`` or ``complex``; ``TypeError`` names the field otherwise.

    Class attributes:
        returns: The fields whose refs are the reply (a NamedTuple when there are several).
        results: The NamedTuple class of the reply when ``returns`` names several fields.
        value: The reply is the *value* of the only returned field, a 0-d array, when that field was left None.
        overlaps: ``(output, input)`` pairs that may share memory, element for element.
        variadic: The field of several operands that the op's method takes as ``*operands``.
        dtypes: Dtypes of the first operand; None allows every dtype. A backend may accept fewer
            (``@launches(dtypes=…)``).
        hidden: Fields that the op's method leaves out.
        keeps: An op that fails by its own status leaves its operands as they were, or as it describes. Then only the
            next op that reads them fails, too; none if the message has a field ``awaited``, which is true.
        answers: Type that the reply is converted to when the answer is a value that the launch finds
            (:meth:`Status.answer <callboard.core.backend.Status.answer>`); None for all other ops.
    """

    returns: ClassVar[tuple[str, ...]] = ("out",)
    results: ClassVar[type[Any] | None] = None
    value: ClassVar[bool] = False
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    variadic: ClassVar[str | None] = None
    hidden: ClassVar[frozenset[str]] = frozenset()
    dtypes: ClassVar[tuple[DType, ...] | None] = None
    keeps: ClassVar[bool] = False
    answers: ClassVar[Any] = None

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, tag: str | None = None) -> None: ...

    def __post_init__(self) -> None:
        info = _INFOS.get(type(self)) or info_of(type(self))
        if info.kinds(self) not in info.accepted:
            info.check(self)

    @property
    def label(self) -> str:
        """Name of the op in errors: the tag, with the name of the user kernel if it launches one."""
        return info_of(type(self)).tag

    def infer(self) -> Mapping[str, Any]:
        """Layouts of all ``Out`` fields, from the operands and settings alone (``Outputs``, ``StructOutputs``).

        Raises:
            ShapeError: The operands do not fit; names operand and value. Nothing has been sent.
        """
        raise NotImplementedError  # every tagged subclass implements it; a test runs over all of them

    @property
    def fence(self) -> Fence | None:
        """Ordering beyond operands and the library's stream; None for nearly all ops.

        ``"behind"``: behind all ops called before; ``"between"``: and all ops called later behind it; ``"aside"``: it
        has no operands, enqueues nothing and is answered when it is admitted, whatever its library's stream does.
        ``"ahead"``: likewise, and it passes all that is parked, its library's ops too.
        Settings and the number of operands may decide it.
        """
        return None

    @property
    def memory(self) -> Origin | None:
        """The origin of the memory of allocated outputs; None for nearly all ops: the pool.

        ``"managed"`` and ``"shared"`` name a kind of memory, which is returned to the device when it is freed.
        ``"opened"`` is memory of another process, named by the op's ``handle``.
        """
        return None


class Repeated(NamedTuple):
    """A message with the signature of an earlier one. The message itself is made only on request.

    Attributes:
        signature: The signature of both.
        operands, numbers: Operands and numbers of this message (:class:`~callboard.core.splitting.Parts`).
        made: A function that makes the message.
    """

    signature: bytes
    operands: list[Any]
    numbers: list[Any]
    made: Callable[[], Op[Any, Any]]


def info_of(cls: type[Op[Any, Any]]) -> OpInfo:
    """The :class:`OpInfo` of an op class, made on first use."""
    info = _INFOS.get(cls)
    if info is None:
        given: Any = cls  # whatever a caller passed for a message
        if not (isinstance(given, type) and issubclass(given, Op)):
            name = getattr(given, "__qualname__", repr(given))
            raise TypeError(f"{name} is not an op; pass a message, as in dev.ask(Gemm(a=a, b=b))")
        tag = cls.__struct_config__.tag
        if not isinstance(tag, str):
            raise TypeError(f"{cls.__qualname__} has no tag; write class {cls.__name__}(Op[...], tag='library.op')")
        info = _INFOS[cls] = OpInfo(cls, tag)
    return info


_INFOS: dict[type[Any], OpInfo] = {}


def outputs_of(op: Op[Any, Any]) -> dict[str, Layout]:
    """Infer and check: the layouts of the outputs that have to be *made* (the ones the caller left None).

    A given output must have the inferred dtype and shape; it may be strided but must not overlap itself.

    Raises:
        ShapeError: Operands do not fit each other, a given output does not fit, or a 0-d operand is not 0-d.
    """
    info = info_of(type(op))
    inferred = op.infer()
    wanted: dict[str, Layout] = {}
    made: dict[str, Layout] = {}
    for field in info.dynamic:
        want = inferred.get(field.name) if field.role is Role.OUT else None
        if want is None:
            continue
        own = flattened(field.name, want)
        wanted |= own
        value = getattr(op, field.name)
        if value is None:
            made |= {n: w if isinstance(w, OpenLayout) else layout_of(w.dtype, w.shape) for n, w in own.items()}
        elif isinstance(want, StructOperand) and _settings(want) != _settings(value):
            raise ShapeError(f"{info.tag}: {field.name} is {_settings(value)}, expected {_settings(want)}")
    for at, item, name, role, value in info.leaves(op):
        if role is Role.SCALAR:
            if isinstance(value, Operand) and value.ndim != 0:
                raise ShapeError(f"{info.tag}: {name} is {value.layout!r}; pass a number or a 0-d array")
            continue
        if info.dynamic[at].many and role is Role.OUT:
            name = f"{name}.{item}"
        if (role is Role.OUT and item < 0) or name in wanted:
            if name not in wanted:
                raise ShapeError(
                    f"{info.tag}: {name} is {value.layout!r}, and this call does not write it; leave it out"
                )
            if value.dtype is not wanted[name].dtype or value.shape != wanted[name].shape:
                raise ShapeError(f"{info.tag}: {name} is {value.layout!r}, expected {wanted[name]!r}")
        if role in (Role.OUT, Role.INOUT) and _self_overlap(value.layout):
            raise ShapeError(f"{info.tag}: {name} is {value.layout!r}: its elements overlap; write to a copy")
    return made


def flattened(name: str, output: Layout | tuple[Layout, ...] | StructOperand) -> dict[str, Layout]:
    """The layouts of an output field by the names of its operands: ``"out"``, ``"out.values"``, ``"outs.0"``."""
    if isinstance(output, tuple):
        return {f"{name}.{item}": layout for item, layout in enumerate(output)}
    if isinstance(output, StructOperand):
        return {f"{name}.{part}": getattr(output, part).layout for part, _ in parts_of(type(output)).operands}
    return {name: output}


def _settings(value: StructOperand) -> tuple[Any, ...]:
    return (type(value).__name__, *(getattr(value, name) for name in parts_of(type(value)).settings))


def _self_overlap(layout: Layout) -> bool:
    """True if two indices may refer to one element (a broadcast or sliding-window view)."""
    if layout.contiguous or layout.size <= 1:
        return False
    reach = 0
    for stride, extent in sorted((abs(s), n) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False
