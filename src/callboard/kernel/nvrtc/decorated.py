"""``@cb.kernel``: one function for both backends, its NumPy body for the CPU and CUDA C++ text for the GPU."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from callboard.core.errors import DeviceMismatch
from callboard.core.layout import Layout
from callboard.core.ref import GpuRef
from callboard.kernel.nvrtc.arguments import assigned, number
from callboard.kernel.nvrtc.binding import Bound, bound
from callboard.kernel.nvrtc.bodies import packed
from callboard.kernel.nvrtc.geometry import Geometry, LaunchSpec, geometry
from callboard.kernel.nvrtc.launch import Launch
from callboard.kernel.nvrtc.mapped import check_maps, declared_maps
from callboard.kernel.nvrtc.parameters import Parameters, parameters
from callboard.kernel.nvrtc.source import C_TYPES, CppStandard, Source, source_of
from callboard.kernel.nvrtc.tensormap import TensorMap

__all__ = ["Kernel", "Rule", "kernel"]

Rule = int | tuple[int, ...] | Callable[..., Any]
"""Numbers, or a function of extents, arrays (their layouts) and numbers, by the names of its parameters."""

THREADS = 256
MAX_KNOWN = 1024
"""Combinations of layouts of one kernel whose geometry is cached."""


class Resolved(NamedTuple):
    """The launch that belongs to a combination of layouts, and of the numbers used by the rules.

    Attributes:
        spec: Specification of the launch.
        source: The source, with the dtypes of the arrays filled in.
        bound: Extents, dtypes and numbers.
        derived: The numbers that follow from the shapes, as a launch has them.
    """

    spec: LaunchSpec
    source: Source
    bound: Bound
    derived: dict[str, Any]


class Kernel:
    """A kernel with its two bodies; :func:`kernel` makes it. Call it with refs of any device.

    Attributes:
        name: Name of the function.
        parameters: Declared parameters.
        body: The NumPy body.
        source: The CUDA C++ text and how it is compiled.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        declared: Parameters,
        source: Source,
        name: str,
        grid: Rule | None,
        block: Rule,
        shared: Rule,
        cluster: Rule | None,
        cooperative: bool,
        tensor_maps: Mapping[str, TensorMap],
    ) -> None:
        self.name: str = body.__name__
        self.parameters = declared
        self.body = body
        self.source = source
        self._expression = name
        self._cooperative = cooperative
        self._maps = declared_maps(declared, tensor_maps)
        self._rules = {"grid": grid, "block": block, "shared": shared, "cluster": cluster}
        self._takes = _taken(body, declared)
        self._asks = _asked(self._rules, declared)
        self._known: dict[tuple[Any, ...], Resolved] = {}
        self._code: bytes | None = None
        functools.update_wrapper(self, body)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launch it: arrays and numbers as declared, in order or by name; outputs, by name, may be given.

        Returns:
            The ref of the array that it writes; a tuple, in the declared order, if it writes several arrays. Returned
            at once: await it.

        Raises:
            TypeError, ShapeError: The arguments do not fit; names the parameter. Nothing has been sent.
            UnsupportedOp, DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped: Raised under the same conditions as
                for any other op.
        """
        return self.submit(self.op(*args, **named))

    def op(self, *args: Any, **named: Any) -> Launch:
        """The message of a launch: ``dev.ask(kernel.op(x, 2.0))``. Arguments and errors as for a call."""
        arrays, numbers = assigned(self.name, self.parameters, args, named)
        layouts = {name: array.layout for name, array in arrays.items()}
        key = (*layouts.items(), *((name, numbers[name]) for name in self._asks if name in numbers))
        try:
            found = self._known.get(key)
        except TypeError:  # a number that cannot be a key is refused below
            found = None
        if found is None:
            found = self._resolve(layouts, numbers)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = found
        if self._maps:
            check_maps(self.name, self._maps, arrays, found.bound.outs, self.parameters)
        roles: dict[str, list[Any]] = {"in": [], "out": [], "inout": [], "number": []}
        for one in self.parameters.all:
            name = one.name
            if name in arrays:
                roles[one.kind].append(arrays[name])
            elif name in numbers:
                roles["number"].append(number(self.name, name, found.bound.dtypes[name], numbers[name]))
            elif name in found.derived:
                roles["number"].append(found.derived[name])
        if self._code is None:
            self._code = packed(self.body)
        return Launch(
            spec=found.spec,
            source=found.source,
            body=self._code,
            ins=tuple(roles["in"]),
            inouts=tuple(roles["inout"]),
            outs=tuple(roles["out"]) or (None if self.parameters.outs else ()),
            numbers=tuple(roles["number"]),
        )

    def submit(self, op: Launch) -> Any:
        """Submit a message of :meth:`op` to the device of its arrays; returns the same as a call."""
        arrays = (*op.ins, *op.inouts, *(op.outs or ()))
        first = next((array for array in arrays if isinstance(array, GpuRef)), None)
        if first is None:
            raise DeviceMismatch(
                f"{self.name}: no argument is an array that determines the device; "
                f"launch it as dev.ask({self.name}.op(...))"
            )
        return self.answer(first._port.services.submit(op))

    def answer(self, replies: Any) -> Any:
        """Order the replies of the message as the results of a call: outputs before arrays in place."""
        if not isinstance(replies, tuple):
            return replies  # it writes nothing
        kinds = [one.kind for one in self.parameters.all if one.kind in ("out", "inout")]
        outs, inouts = iter(replies[: kinds.count("out")]), iter(replies[kinds.count("out") :])
        ordered = tuple(next(outs if kind == "out" else inouts) for kind in kinds)
        return ordered[0] if len(ordered) == 1 else ordered

    # -- from layouts to a launch --------------------------------------------------------------------------------------

    def _resolve(self, layouts: dict[str, Layout], numbers: Mapping[str, Any]) -> Resolved:
        found = bound(self.name, self.parameters, layouts)
        everything = {**numbers, **found.numbers, **layouts, **found.extents}
        for one, layout in zip(self.parameters.outs, found.outs, strict=True):
            everything.setdefault(one.name, layout)
        kinds = tuple(
            f"{one.kind} {found.dtypes[one.name]}" if one.is_array else found.dtypes[one.name]
            for one in self.parameters.all
        )
        types = {name: C_TYPES[self._dtype_of(name, found)] for name in self.parameters.types}
        name, source = self._expression, self.source
        if "{" in name:
            name = name.format(**types)
        elif types:
            source = source_of_types(source, types)
        spec = LaunchSpec(
            name,
            kinds,
            self._geometry(everything, found, layouts),
            tuple(one.name if one.name in self._takes else "" for one in self.parameters.all),
            tuple(layout.shape for layout in found.outs),
            self._cooperative,
            tuple((at, self._maps[one.name]) for at, one in enumerate(self.parameters.all) if one.name in self._maps),
        )
        derived = {one: number(self.name, one, found.dtypes[one], value) for one, value in found.numbers.items()}
        return Resolved(spec, source, found, derived)

    def _dtype_of(self, type_name: str, found: Bound) -> str:
        return next(found.dtypes[one.name] for one in self.parameters.all if one.dtype == type_name)

    def _geometry(self, everything: Mapping[str, Any], found: Bound, layouts: Mapping[str, Layout]) -> Geometry:
        rules = self._rules
        block = self._evaluated("block", everything)
        grid = rules["grid"]
        if grid is None:  # a thread for each element
            first = found.outs[0] if found.outs else next(iter(layouts.values()))
            threads = geometry(self.name, 1, block).block
            grid_value: Any = -(-first.size // (threads[0] * threads[1] * threads[2]))
        else:
            grid_value = self._evaluated("grid", everything)
        cluster = None if rules["cluster"] is None else self._evaluated("cluster", everything)
        return geometry(self.name, grid_value, block, self._evaluated("shared", everything), cluster)

    def _evaluated(self, name: str, everything: Mapping[str, Any]) -> Any:
        rule = self._rules[name]
        if not callable(rule):
            return rule
        return rule(**{asked: everything[asked] for asked in inspect.signature(rule).parameters})

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def kernel(
    params: str,
    *,
    cuda: str,
    grid: Rule | None = None,
    block: Rule = THREADS,
    shared: Rule = 0,
    cluster: Rule | None = None,
    cooperative: bool = False,
    tensor_maps: Mapping[str, TensorMap] | None = None,
    name: str | None = None,
    options: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    include_paths: Iterable[str] = (),
    std: CppStandard = "c++17",
    fast_math: bool = False,
) -> Callable[[Callable[..., Any]], Kernel]:
    """A kernel that runs on both backends: the decorated function with NumPy on a CPU, ``cuda`` on a GPU.

    ::

        @cb.kernel("in x: f32[n], out y: f32[n], alpha: f32, n: i32", cuda=TEXT)
        def scaled(x, y, alpha):
            np.multiply(x, alpha, out=y)


        y = scaled(gpu.put(x), 2.0)  # GpuRef

    The body gets NumPy arrays under the names of the parameters, and writes to the outputs; it need not take numbers
    that follow from the shapes. The CUDA function takes all parameters in the declared order, arrays as pointers.

    Args:
        params: The parameters: :mod:`callboard.kernel.nvrtc.parameters`.
        cuda: CUDA C++ with a ``__global__`` function.
        grid: Blocks: numbers, or a function of extents, arrays and numbers by name, as ``lambda h, w: (w // 32, h)``.
            None: as many as give each element of the first output (else of the first array) a thread. 0: nothing is
            launched.
        block: Threads of a block; likewise numbers or a function.
        shared: Bytes of dynamic shared memory; likewise.
        cluster: Blocks of a cluster (compute capability 9.0); likewise.
        cooperative: All blocks run at once and may wait for each other (``cooperative_groups``).
        tensor_maps: Arrays that the CUDA function takes as tensor maps, by name (:func:`callboard.tensor_map`).
        name: Name of the ``__global__`` function; by default that of the Python function. The name of a template is an
            expression with the names of dtypes in braces: ``"axpy<{T}>"``. Without braces the names are macros
            (``#define T float``) in the text.
        options, headers, include_paths, std, fast_math: See :func:`callboard.kernel.nvrtc.source.source_of`.

    Raises:
        TypeError, ValueError, ShapeError: The declaration is wrong, or does not fit the body; names the parameter.
    """
    declared = parameters(params)

    def decorate(body: Callable[..., Any]) -> Kernel:
        source = source_of(cuda, options, headers, include_paths, std, title=f"{body.__name__}.cu", fast_math=fast_math)
        expression = body.__name__ if name is None else name
        maps = tensor_maps or {}
        return Kernel(body, declared, source, expression, grid, block, shared, cluster, cooperative, maps)

    return decorate


def source_of_types(source: Source, types: Mapping[str, str]) -> Source:
    """The source with macros for the names of dtypes. As options they would also apply to what NVRTC includes first."""
    defined = "".join(f"#define {name} {c_type}\n" for name, c_type in types.items())
    return msgspec.structs.replace(source, text=f"{defined}#line 1\n{source.text}")


def _taken(body: Callable[..., Any], declared: Parameters) -> set[str]:
    """The parameters that the body takes.

    Raises:
        TypeError: It does not take the declared parameters.
    """
    taken = set(inspect.signature(body).parameters)
    names = {one.name for one in declared.all}
    wanted = {one.name for one in declared.all if not one.formula}
    for name in sorted(taken - names):
        raise TypeError(f"{body.__name__} takes {name}, which its parameters do not declare")
    for name in sorted(wanted - taken):
        raise TypeError(f"{body.__name__} does not take {name}, which its parameters declare")
    return taken


def _asked(rules: Mapping[str, Any], declared: Parameters) -> set[str]:
    """The numbers that the rules ask for.

    Raises:
        TypeError: A rule takes a name that is not declared.
    """
    known = {one.name for one in declared.all}
    known |= {axis for one in declared.all for axis in one.shape if axis.isidentifier()}
    asked: set[str] = set()
    for name, rule in rules.items():
        if callable(rule):
            own = set(inspect.signature(rule).parameters)
            for one in sorted(own - known):
                raise TypeError(f"{name} uses {one}, which is neither a parameter nor an extent")
            asked |= own
    return {one.name for one in declared.all if not one.is_array} & asked
