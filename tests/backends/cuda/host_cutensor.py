"""A stand-in for ``nvmath.bindings.cutensor`` that executes on host memory, and refuses what cuTENSOR 2.8 was seen to.

Operands are read and written exactly where descriptors and addresses say, in double precision. What is not promised by
the library's manual is refused here, too: an address that is less aligned than its descriptor says, what is added lying
in another way than the result, a workspace that is too small.
"""

import ctypes
import enum
import itertools
from typing import Any, NamedTuple

import numpy as np
from host_cublas import TYPES
from host_driver import HostDriver, StatusError, array_at

INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED, INSUFFICIENT_WORKSPACE = 7, 14, 15, 19
WORKSPACE = 1000
SCALES = {0: "f4", 1: "f8", 2: "f4", 14: "f4", 4: "c8", 5: "c16"}
JOINS = {3: np.add, 5: np.multiply, 6: np.maximum, 7: np.minimum}
FUNCTIONS = {1: lambda x: x, 9: np.conj, 25: np.negative, 22: np.exp}


class CutensorError(StatusError):
    pass


class Side(NamedTuple):
    """A tensor of an operation."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    type: int
    alignment: int
    modes: tuple[int, ...]
    operator: int

    def array(self, driver: HostDriver, address: int) -> Any:
        checked(address % self.alignment == 0)
        found = array_at(address, TYPES[self.type], self.extents, self.steps)
        assert driver.on_device(address)
        return found

    def read(self, driver: HostDriver, address: int) -> Any:
        """Its elements with its operator, in double precision."""
        array = self.array(driver, address)
        return FUNCTIONS[self.operator](array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


class Operation(NamedTuple):
    """What a descriptor or a plan holds."""

    call: str
    sides: tuple[Side, ...]
    joins: tuple[int, ...]
    compute: int


def checked(right: bool, status: int = INVALID_VALUE) -> None:
    if not right:
        raise CutensorError(status)


class HostCutensor:
    """The functions of the binding that the backend calls.

    Attributes:
        calls: Names of the functions that enqueued something.
        live: What has been created and not destroyed, by handle.
        fails: Statuses by name of a function.
        algorithms: Of the plans that were made.
        unknown: Algorithms that it does not have.
    """

    cuTENSORError = CutensorError  # noqa: N815 - the binding's name

    class Operator(enum.IntEnum):
        OP_IDENTITY, OP_CONJ, OP_EXP, OP_NEG = 1, 9, 22, 25
        OP_ADD, OP_MUL, OP_MAX, OP_MIN = 3, 5, 6, 7

    class ComputeDesc:
        """Each is asked for by calling it."""

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._ids = itertools.count(1000)
        self.live: dict[int, Any] = {}
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.algorithms: list[int] = []
        self.unknown: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("destroy"):
            raise AttributeError(name)
        return self.live.pop

    def _call(self, name: str) -> None:
        if name in self.fails:
            raise CutensorError(self.fails[name])

    def _made(self, what: Any) -> int:
        handle = next(self._ids)
        self.live[handle] = what
        return handle

    def create(self) -> int:
        self._call("create")
        return self._made("handle")

    # -- descriptors and plans -----------------------------------------------------------------------------------------

    def create_tensor_descriptor(
        self, handle: int, count: int, extents: list[int], steps: list[int], kind: int, alignment: int
    ) -> int:
        checked(count == len(extents) == len(steps) and min([1, *extents, *steps]) > 0)
        checked(alignment >= np.dtype(TYPES[kind]).itemsize)
        return self._made((tuple(extents), tuple(steps), kind, alignment))

    def _described(self, call: str, arguments: list[Any], joins: int, result: int) -> int:
        """``arguments``: descriptor and modes of each side, with an operator for all but the last."""
        self._call(f"create_{call}")
        *arguments, compute = arguments
        found = arguments[len(arguments) - joins :]
        arguments = arguments[: len(arguments) - joins]
        sides = []
        while arguments:
            descriptor, modes, *arguments = arguments
            operator = arguments.pop(0) if arguments else 1
            sides.append(Side(*self.live[descriptor], tuple(modes), int(operator)))
        *_, c, out = sides
        checked(
            call == "permutation" or (c.extents, c.steps, c.modes) == (out.extents, out.steps, out.modes), NOT_SUPPORTED
        )
        checked(compute == (4 if out.type in (1, 5) else 3) or call == "contraction", NOT_SUPPORTED)
        return self._made(Operation(call, tuple(sides), tuple(map(int, found)), compute))

    def create_contraction(self, handle: int, *arguments: Any) -> int:
        return self._described("contraction", list(arguments), 0, 3)

    def create_reduction(self, handle: int, *arguments: Any) -> int:
        return self._described("reduction", list(arguments), 1, 2)

    def create_permutation(self, handle: int, *arguments: Any) -> int:
        return self._described("permutation", list(arguments), 0, 1)

    def create_elementwise_binary(self, handle: int, *arguments: Any) -> int:
        return self._described("binary", list(arguments), 1, 2)

    def create_elementwise_trinary(self, handle: int, *arguments: Any) -> int:
        return self._described("trinary", list(arguments), 2, 3)

    def create_plan_preference(self, handle: int, algorithm: int, jit: int) -> int:
        checked(jit == 0)
        return self._made(algorithm)

    def plan_preference_set_attribute(self, handle: int, preference: int, attribute: int, at: int, size: int) -> None:
        checked((attribute, ctypes.c_int32.from_address(at).value, size) == (1, 0, 4))

    def estimate_workspace_size(self, handle: int, operation: int, preference: int, kind: int) -> int:
        return 2 * WORKSPACE

    def create_plan(self, handle: int, operation: int, preference: int, limit: int) -> int:
        self._call("create_plan")
        checked(self.live[preference] not in self.unknown, NOT_SUPPORTED)
        self.algorithms.append(self.live[preference])
        return self._made(self.live[operation])

    def plan_get_attribute(self, handle: int, plan: int, attribute: int, at: int, size: int) -> None:
        checked((attribute, size) == (0, 8))
        needs = self.live[plan].call in ("contraction", "reduction")
        ctypes.c_uint64.from_address(at).value = WORKSPACE if needs else 0

    # -- execution -----------------------------------------------------------------------------------------------------

    def _factor(self, plan: int, at: int) -> Any:
        assert not self._driver.on_device(at)
        return array_at(at, np.dtype(SCALES[self.live[plan].sides[-1].type]), (1,), (1,))[0]

    def _workspace(self, address: int, size: int) -> None:
        checked(size >= WORKSPACE, INSUFFICIENT_WORKSPACE)
        assert address % 256 == 0
        assert self._driver.on_device(address, size)

    def _store(self, plan: int, out: int, value: Any) -> None:
        side = self.live[plan].sides[-1]
        array = side.array(self._driver, out)
        array[...] = value

    def contract(
        self, handle: int, plan: int, alpha: int, a: int, b: int, beta: int, c: int, out: int, *rest: int
    ) -> None:
        self._call("contract")
        self.calls.append("contract")
        *workspace, stream = rest
        self._workspace(*workspace)
        self._driver.streams.add(stream)
        sides = self.live[plan].sides
        x, y = (side.read(self._driver, at) for side, at in zip(sides, (a, b), strict=False))
        value = self._factor(plan, alpha) * np.einsum(x, sides[0].modes, y, sides[1].modes, sides[3].modes)
        if factor := self._factor(plan, beta):
            value = value + factor * sides[2].read(self._driver, c)
        self._store(plan, out, value)

    def reduce(self, handle: int, plan: int, alpha: int, a: int, beta: int, c: int, out: int, *rest: int) -> None:
        self.calls.append("reduce")
        *workspace, stream = rest
        self._workspace(*workspace)
        self._driver.streams.add(stream)
        operation: Operation = self.live[plan]
        first, second, result = operation.sides
        axes = tuple(i for i, mode in enumerate(first.modes) if mode not in result.modes)
        kept = [mode for mode in first.modes if mode in result.modes]
        value = JOINS[operation.joins[0]].reduce(first.read(self._driver, a), axis=axes)
        value = self._factor(plan, alpha) * value.transpose([kept.index(mode) for mode in result.modes])
        if factor := self._factor(plan, beta):
            value = value + factor * second.read(self._driver, c)
        self._store(plan, out, value)

    def _elementwise(self, call: str, plan: int, arguments: tuple[int, ...]) -> None:
        self.calls.append(call)
        operation: Operation = self.live[plan]
        result = operation.sides[-1]
        *pairs, out, stream = arguments
        self._driver.streams.add(stream)
        value: Any = None
        for i, side in enumerate(operation.sides[:-1]):
            term = self._factor(plan, pairs[2 * i]) * side.read(self._driver, pairs[2 * i + 1])
            kept = [mode for mode in result.modes if mode in side.modes]
            term = term.transpose([side.modes.index(mode) for mode in kept])
            term = term[tuple(slice(None) if mode in kept else None for mode in result.modes)]
            value = term if value is None else JOINS[operation.joins[i - 1]](value, term)
        self._store(plan, out, value)

    def permute(self, handle: int, plan: int, *arguments: int) -> None:
        self._elementwise("permute", plan, arguments)

    def elementwise_binary_execute(self, handle: int, plan: int, *arguments: int) -> None:
        self._elementwise("binary", plan, arguments)

    def elementwise_trinary_execute(self, handle: int, plan: int, *arguments: int) -> None:
        self._elementwise("trinary", plan, arguments)


for number, name in enumerate(("16F", "16BF", "TF32", "32F", "64F")):
    setattr(HostCutensor.ComputeDesc, f"COMPUTE_{name}", staticmethod(lambda number=number: number))
