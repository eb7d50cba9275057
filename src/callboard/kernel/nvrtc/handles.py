"""``Program`` and ``KernelHandle``: the results of ``dev.nvrtc.compile`` and ``dev.module.load``.

Both stay valid when a context is lost: they hold the source, not a module, and a launch in the next generation compiles
(from the cache on disk) and loads it again.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from callboard.core.dtype import as_dtype
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.nvrtc.arguments import number
from callboard.kernel.nvrtc.binding import bound
from callboard.kernel.nvrtc.compile import Inspected, KernelAttributes, Occupancy, inspected
from callboard.kernel.nvrtc.geometry import LaunchSpec, geometry
from callboard.kernel.nvrtc.launch import Launched
from callboard.kernel.nvrtc.mapped import check_maps, declared_maps
from callboard.kernel.nvrtc.parameters import Parameters, parameters
from callboard.kernel.nvrtc.source import Compiled, Source
from callboard.kernel.nvrtc.tensormap import TensorMap

__all__ = ["Answer", "Code", "KernelHandle", "Program"]

R = TypeVar("R")
T = TypeVar("T")


class Answer(Generic[T]):
    """Something that a device answers: await it, or ask for the ``result``.

    Args:
        ref: The array that the answer is in.
        read: Makes the answer of the array.
    """

    def __init__(self, ref: Any, read: Callable[[Any], T]) -> None:
        self._ref = ref
        self._read = read

    def then(self, read: "Callable[[T], R]") -> "Answer[R]":
        """The same answer, read further."""
        return Answer(self._ref, lambda array: read(self._read(array)))

    def done(self) -> bool:
        """True if it has been answered, or has failed; without waiting."""
        return bool(self._ref.done())

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._ref.__await__()  # its extents may not be known before
        found = self._ref.get()
        if not isinstance(found, np.ndarray):
            found = yield from found.__await__()
        return self._read(found)

    def result(self, timeout: float | None = None) -> T:
        """Wait for it, at most ``timeout`` seconds; on any thread but that of the device's loop.

        Raises:
            TimeoutError, RuntimeError: See :meth:`callboard.Reply.result`.
        """
        self._ref.result(timeout)
        found = self._ref.get()
        return self._read(found if isinstance(found, np.ndarray) else found.result(timeout))


class Code:
    """The source of kernels, and the maker of their messages.

    Args:
        submit: Submit function of the device.
        launch: Message class of a launch.
        inspect: Message class that asks about a kernel.
        fields: Fields common to both messages: the source or the image.
    """

    def __init__(
        self,
        submit: Callable[[Op[Any, Any]], Any],
        launch: type[Launched],
        inspect: type[Inspected],
        fields: dict[str, Any],
    ) -> None:
        self.submit = submit
        self.launch = launch
        self.inspect = inspect
        self.fields = fields

    def kernel(
        self, name: str, params: str | None = None, *, tensor_maps: Mapping[str, TensorMap] | None = None
    ) -> "KernelHandle":
        """A kernel of it.

        Args:
            name: A name expression of a source (``"axpy<float>"``), the name in an image.
            params: Parameters of the kernel: :mod:`callboard.kernel.nvrtc.parameters`. None: each launch determines
                them; each array then counts as read and written, and numbers must be NumPy's, whose dtypes are passed
                on.
            tensor_maps: Arrays that the kernel takes as tensor maps, by name (:func:`callboard.tensor_map`).

        Raises:
            ValueError: They are declared wrong; names the parameter.
        """
        if params is None:
            if tensor_maps:
                raise ValueError(f"{name}: tensor_maps name parameters; declare them")
            return KernelHandle(self, name, None, {})
        declared = parameters(params)
        return KernelHandle(self, name, declared, declared_maps(declared, tensor_maps or {}))


class Program(Code):
    """A source being compiled for a device: ``await program`` waits for the compiler and returns its result.

    Launches need not wait for it. A source that the compiler refuses fails ``await program`` and every launch with
    :class:`~callboard.LibraryError`, which has the compiler's log with line numbers.
    """

    def __init__(
        self,
        submit: Callable[[Op[Any, Any]], Any],
        launch: type[Launched],
        inspect: type[Inspected],
        source: Source,
        compiled: Any,
    ) -> None:
        super().__init__(submit, launch, inspect, {"source": source})
        self.source = source
        self._answer: Answer[Compiled] = Answer(compiled, _compiled)

    def __await__(self) -> Generator[Any, None, Compiled]:
        return self._answer.__await__()

    def done(self) -> bool:
        """True if the compiler has finished, with a binary or an error; without waiting."""
        return self._answer.done()

    def result(self, timeout: float | None = None) -> Compiled:
        """Wait for the compiler; as :meth:`Answer.result`."""
        return self._answer.result(timeout)

    def __repr__(self) -> str:
        return f"<program {self.source.title}>"


class KernelHandle:
    """A kernel to launch with a geometry of your choice.

    Attributes:
        name: Name of the kernel as requested.
        parameters: Declared parameters; None if each launch determines them.
    """

    def __init__(self, code: Code, name: str, declared: Parameters | None, maps: Mapping[str, TensorMap]) -> None:
        self.name = name
        self.parameters = declared
        self._code = code
        self._maps = maps

    def __call__(
        self, grid: Any, block: Any, *args: Any, shared: int = 0, cluster: Any = None, cooperative: bool = False
    ) -> Any:
        """Launch it.

        Args:
            grid, block: Blocks, and threads of each: a number, or up to three. A grid with a 0 launches nothing.
            args: An argument for each parameter, in order; None for an output that is to be allocated. Numbers that
                follow from the shapes are left out.
            shared: Bytes of dynamic shared memory of a block.
            cluster: Blocks of a cluster; ``grid`` counts blocks all the same.
            cooperative: All blocks run at once and may wait for each other.

        Returns:
            The ref of the array that it writes; a tuple, in order, if it writes several arrays. Returned at once: await
            it.

        Raises:
            TypeError, ShapeError: The arguments do not fit; names the parameter. Nothing has been sent.
            UnsupportedOp, DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped: Raised under the same conditions as
                for any other op.
        """
        op = self.op(grid, block, *args, shared=shared, cluster=cluster, cooperative=cooperative)
        replies = self._code.submit(op)
        if not isinstance(replies, tuple):
            return replies
        kinds = [role for role in (kind.partition(" ")[0] for kind in op.spec.kinds) if role in ("out", "inout")]
        outs, inouts = iter(replies[: kinds.count("out")]), iter(replies[kinds.count("out") :])
        ordered = tuple(next(outs if kind == "out" else inouts) for kind in kinds)
        return ordered[0] if len(ordered) == 1 else ordered

    def op(
        self, grid: Any, block: Any, *args: Any, shared: int = 0, cluster: Any = None, cooperative: bool = False
    ) -> Launched:
        """The message of a launch; arguments and errors as for a call."""
        threads = geometry(self.name, grid, block, shared, cluster)
        roles: dict[str, list[Any]] = {"in": [], "out": [], "inout": [], "number": []}
        kinds: list[str] = []
        shapes: tuple[tuple[int, ...], ...] = ()
        if self.parameters is None:
            for at, value in enumerate(args):
                role, kind, value = _undeclared(self.name, at, value)
                roles[role].append(value)
                kinds.append(kind)
        else:
            shapes = self._declared(self.parameters, args, roles, kinds)
        names = () if self.parameters is None else tuple(one.name for one in self.parameters.all)
        maps = tuple((at, self._maps[one]) for at, one in enumerate(names) if one in self._maps)
        spec = LaunchSpec(self.name, tuple(kinds), threads, names, shapes, bool(cooperative), maps)
        return self._code.launch(
            spec=spec,
            ins=tuple(roles["in"]),
            inouts=tuple(roles["inout"]),
            outs=tuple(roles["out"]) or (None if shapes else ()),
            numbers=tuple(roles["number"]),
            **self._code.fields,
        )

    def attributes(self) -> Answer[KernelAttributes]:
        """The resource usage of the compiled kernel: ``await handle.attributes()``."""
        return self._asked(256, 0, lambda numbers: inspected(numbers.tolist())[0])

    def occupancy(self, block: int, shared: int = 0) -> Answer[Occupancy]:
        """The occupancy of the device with blocks of ``block`` threads, and the block size that maximises it."""
        return self._asked(block, shared, lambda numbers: inspected(numbers.tolist())[1])

    def _asked(self, threads: int, shared: int, read: Callable[[Any], T]) -> Answer[T]:
        op = self._code.inspect(name=self.name, threads=threads, shared=shared, **self._code.fields)
        return Answer(self._code.submit(op), read)

    def _declared(
        self, declared: Parameters, args: Sequence[Any], roles: dict[str, list[Any]], kinds: list[str]
    ) -> tuple[tuple[int, ...], ...]:
        """Sort the arguments by role and return the shapes of the outputs, if they are to be made."""
        wanted = [one for one in declared.all if not one.formula]
        if len(args) != len(wanted):
            names = ", ".join(one.name for one in wanted)
            raise TypeError(f"{self.name} takes {len(wanted)} arguments ({names}), {len(args)} were passed")
        given = {one.name: value for one, value in zip(wanted, args, strict=True)}
        for one in wanted:
            value = given[one.name]
            if one.is_array and not isinstance(value, Operand) and not (one.kind == "out" and value is None):
                raise TypeError(f"{self.name}: {one.name} is {type(value).__name__}; pass a GpuRef (dev.put makes one)")
        layouts = {one.name: given[one.name].layout for one in wanted if isinstance(given[one.name], Operand)}
        found = bound(self.name, declared, layouts)
        if self._maps:
            check_maps(self.name, self._maps, given, found.outs, declared)
        for one in declared.all:
            dtype = found.dtypes[one.name]
            kinds.append(f"{one.kind} {dtype}" if one.is_array else dtype)
            if not one.is_array:
                value = found.numbers[one.name] if one.formula else given[one.name]
                roles["number"].append(number(self.name, one.name, dtype, value))
            elif given[one.name] is not None:
                roles[one.kind].append(given[one.name])
        if roles["out"] and len(roles["out"]) < len(declared.outs):
            raise TypeError(
                f"{self.name}: pass all outputs ({', '.join(o.name for o in declared.outs)}) or None for all"
            )
        return tuple(layout.shape for layout in found.outs)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def _undeclared(name: str, at: int, value: Any) -> tuple[str, str, Any]:
    """Role, kind and value of an argument whose parameter is not declared."""
    if isinstance(value, Operand):
        return "inout", "inout", value
    if isinstance(value, np.generic):
        dtype = as_dtype(value.dtype).name
        return "number", dtype, number(name, f"argument {at}", dtype, value)
    raise TypeError(
        f"{name}: argument {at} is {type(value).__name__}; pass a GpuRef or a NumPy number (np.int32(4)), or declare "
        "the parameters"
    )


def _compiled(array: Any) -> Compiled:
    return msgspec.msgpack.decode(array.tobytes(), type=Compiled)
