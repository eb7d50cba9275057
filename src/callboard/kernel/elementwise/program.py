"""An expression with its dtypes: steps in the order of their execution, equal ones once."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.elementwise.functions import FUNCTIONS, Refusal
from callboard.kernel.elementwise.language import read
from callboard.kernel.elementwise.promotion import WEAK_DEFAULTS, Weak, join, join_weak
from callboard.kernel.elementwise.tree import Apply, Literal, Name, Number, Tree
from callboard.kernel.elementwise.weak import as_number, evaluate, kind_of, names_in

__all__ = ["Builder", "Loose", "Program", "Step", "Value", "compiled"]


class Step(NamedTuple):
    """One computation, applied to one element of each argument.

    Attributes:
        function: Name in :data:`~callboard.kernel.elementwise.functions.FUNCTIONS`; ``"cast"``; ``"operand"``;
            ``"constant"``; or ``"number"``, which has its own value in each call.
        arguments: Steps before.
        dtype: The dtype of the result.
        value: The operand's position, the constant, or the tree of a number.
    """

    function: str
    arguments: tuple[int, ...]
    dtype: DType
    value: Any = None


class Program(NamedTuple):
    """A typed expression.

    Attributes:
        steps: Each after its arguments; only those that a result needs.
        results: The steps that are stored, in the requested order.
        numbers: The steps ``"number"``, in order: of these each call has values (:meth:`values`).
        names: Names of the numbers of a call, in order.
        bools: The names of numbers that are bools.
    """

    steps: tuple[Step, ...]
    results: tuple[int, ...]
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    bools: frozenset[str]

    def values(self, given: Sequence[Number] | None) -> list[Number]:
        """The values of the steps ``"number"`` in a call that is given these numbers.

        Raises:
            ShapeError: A number does not fit into the integer dtype beside it; names it.
        """
        if not self.numbers:
            return []
        numbers = {n: bool(v) if n in self.bools else v for n, v in zip(self.names, given or (), strict=True)}
        found = []
        for at in self.numbers:
            step = self.steps[at]
            found.append(as_number(evaluate(step.value, numbers), step.dtype, _shown(step.value)))
        return found


class Loose(NamedTuple):
    """A computation on numbers only, which takes the dtype of the array beside it."""

    kind: Weak
    tree: Tree


Value = int | Loose


@functools.lru_cache(maxsize=4096)
def compiled(
    text: str,
    dtypes: tuple[DType, ...],
    numbers: tuple[tuple[str, Weak], ...] = (),
    results: tuple[str, ...] = (),
) -> Program:
    """Give an expression its dtypes.

    Args:
        text: Text of the expression.
        dtypes: The dtypes of its array inputs, in order.
        numbers: The inputs that are numbers, and their kinds.
        results: Names of the statements whose results are stored; empty for the last statement.

    Raises:
        ShapeError: It is not an expression, or these dtypes do not have the functions that it calls; quotes the place.
    """
    expression = read(text)
    builder = Builder(text)
    known = builder.inputs(expression.inputs, dtypes, numbers)
    for target, tree in expression.statements:
        known[target] = builder.value(tree, known)
    stored = [builder.strong(known[name], None) for name in results or (expression.target,)]
    return builder.program(stored, numbers)


class Builder:
    """Makes the steps of a program from trees.

    Args:
        text: Text of the expression, for errors.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps: list[Step] = []
        self._known: dict[Step, int] = {}

    def inputs(
        self, names: Sequence[str], dtypes: Sequence[DType], numbers: Sequence[tuple[str, Weak]]
    ) -> dict[str, Value]:
        """The inputs of an expression: numbers by their names, the others arrays of these dtypes."""
        known: dict[str, Value] = {name: Loose(kind, Name(name)) for name, kind in numbers}
        arrays = [name for name in names if name not in known]
        for at, (name, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
            known[name] = self.step(Step("operand", (), dtype, at))
        return known

    def program(self, stored: Sequence[int], numbers: Sequence[tuple[str, Weak]]) -> Program:
        """Return the program of the steps needed for ``stored``, with the numbers of a call."""
        needed = set(stored)
        for at in reversed(range(len(self.steps))):
            if at in needed:
                needed.update(self.steps[at].arguments)
        kept = sorted(needed)
        place = {old: new for new, old in enumerate(kept)}
        steps = tuple(
            self.steps[old]._replace(arguments=tuple(place[a] for a in self.steps[old].arguments)) for old in kept
        )
        values = tuple(at for at, step in enumerate(steps) if step.function == "number")
        names, bools = tuple(name for name, _ in numbers), frozenset(n for n, kind in numbers if kind == "bool")
        return Program(steps, tuple(place[old] for old in stored), values, names, bools)

    def step(self, step: Step) -> int:
        """The number of this step, which is made once."""
        # 0.0 and -0.0 are equal, and so are True and 1: the text of a constant distinguishes them
        key = step._replace(value=(type(step.value), repr(step.value)))
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = len(self.steps)
            self.steps.append(step)
        return at

    # -- values --------------------------------------------------------------------------------------------------------

    def value(self, tree: Tree, known: Mapping[str, Value]) -> Value:
        """The value of a tree, given the values of its names."""
        if isinstance(tree, Literal):
            return Loose(kind_of(tree.value), tree)
        if isinstance(tree, Name):
            return known[tree.name]
        if tree.function.startswith("reduce:"):
            raise ShapeError(f"expression {self.text!r}: {tree.function[7:]} of one argument is for cb.reduction, once")
        arguments = [self.value(one, known) for one in tree.arguments]
        if all(isinstance(one, Loose) for one in arguments):
            return _loose(self.text, tree.function, arguments)
        if tree.function.startswith("cast:"):
            (one,) = arguments
            assert isinstance(one, int)
            dtype = DTYPES[tree.function[5:]]
            if dtype.itemsize == 2 and dtype.is_float and self.steps[one].function != "operand":
                return self.step(Step("cast", (one,), dtype))  # rounded here, also if it is of that dtype
            return self.cast(one, dtype)
        return self.apply(tree.function, arguments)

    def strong(self, value: Value, dtype: DType | None) -> int:
        """A step of the value: converted to this dtype; as it is, or a number's own dtype, for None."""
        if isinstance(value, int):
            return value if dtype is None else self.cast(value, dtype)
        dtype = WEAK_DEFAULTS[value.kind] if dtype is None else dtype
        if isinstance(value.tree, Literal):
            return self.step(Step("constant", (), dtype, as_number(value.tree.value, dtype, repr(value.tree.value))))
        return self.step(Step("number", (), dtype, value.tree))

    def cast(self, at: int, dtype: DType) -> int:
        """A step converted to a dtype."""
        old = self.steps[at].dtype
        if old is dtype:
            return at
        if old.is_complex and not dtype.is_complex and dtype.kind != "bool":
            raise ShapeError(
                f"expression {self.text!r}: {old} is not converted to {dtype}; take real(), imag() or abs()"
            )
        return self.step(Step("cast", (at,), dtype))

    def apply(self, name: str, arguments: Sequence[Value]) -> int:
        """Append a function of values, at least one of which is a step."""
        own = [self.steps[one].dtype if isinstance(one, int) else None for one in arguments]
        beside = own[1:] if name == "where" else own
        strong = [dtype for dtype in beside if dtype is not None]
        common = functools.reduce(join, strong) if strong else None
        dtypes = [
            self.steps[one].dtype
            if isinstance(one, int)
            else WEAK_DEFAULTS[one.kind]
            if common is None
            else join_weak(common, one.kind)
            for one in arguments
        ]
        if common is None:  # both branches of a choice are numbers
            dtypes[1:] = [functools.reduce(join, dtypes[1:])] * 2
        try:
            types = FUNCTIONS[name].rule(dtypes)
        except Refusal as e:
            raise ShapeError(f"expression {self.text!r}: {name} of {', '.join(d.name for d in dtypes)}: {e}") from None
        power = _short_power(name, arguments[-1], types.result)
        if power is not None:
            at = self.strong(arguments[0], types.arguments[0])
            return self.step(Step(power, (at,), types.result)) if power != "positive" else at
        steps = tuple(self.strong(one, dtype) for one, dtype in zip(arguments, types.arguments, strict=True))
        return self.step(Step(name, steps, types.result))


def _short_power(name: str, exponent: Value, dtype: DType) -> str | None:
    """NumPy's replacement for a power with one of a few constant exponents."""
    if name != "pow" or isinstance(exponent, int) or not isinstance(exponent.tree, Literal):
        return None
    value = exponent.tree.value
    if value == 2:
        return "square"
    if value == 1:
        return "positive"
    if dtype.kind in ("float", "complex"):
        return {0.5: "sqrt", -1: "reciprocal"}.get(value.real) if not isinstance(value, complex) else None
    return None


def _loose(text: str, name: str, arguments: Sequence[Any]) -> Loose:
    """A function of numbers alone."""
    tree: Tree = Apply(name, tuple(one.tree for one in arguments))
    if not names_in(tree):
        literal = Literal(evaluate(tree, {}))
        return Loose(kind_of(literal.value), literal)
    if name.startswith("cast:"):
        dtype = DTYPES[name[5:]]
    else:
        try:
            dtype = FUNCTIONS[name].rule([WEAK_DEFAULTS[one.kind] for one in arguments]).result
        except Refusal as e:
            raise ShapeError(
                f"expression {text!r}: {name} of {', '.join(one.kind for one in arguments)}: {e}"
            ) from None
    return Loose("int" if dtype.kind == "uint" else dtype.kind, tree)


def _shown(tree: Tree) -> str:
    """A tree for errors."""
    return "".join(_text(tree))


def _text(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Literal):
        yield repr(tree.value)
    elif isinstance(tree, Name):
        yield tree.name
    else:
        yield f"{tree.function}({', '.join(map(_shown, tree.arguments))})"
