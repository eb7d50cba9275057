"""The language of expressions: Python's own syntax of assignments, read once into a tree.

::

    z = alpha * x + max(y, 0)

Statements are separated by ``;`` or line ends, and assign (``=``, ``+=`` …); a single expression alone is read as
``out = …``. There are names, numbers (``2``, ``0.5``, ``1j``, ``True``, ``pi``, ``inf``, ``nan``), the operators
``+ - * / // % **``, ``& | ^ ~ << >>``, comparisons (chained as in Python), ``and or not``, ``a if c else b``, and calls
of :data:`~callboard.kernel.elementwise.functions.FUNCTIONS` and of the dtypes, which convert: ``f32(x)``.
"""

import ast
import functools
import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

from callboard.core.errors import ShapeError
from callboard.kernel.elementwise.functions import ALIASES, FUNCTIONS
from callboard.kernel.elementwise.promotion import ELEMENTS
from callboard.kernel.elementwise.shorthands import SHORTHANDS
from callboard.kernel.elementwise.tree import Apply, Literal, Name, Number, Tree

__all__ = ["REDUCTIONS", "Expression", "read"]

MAX_CHARACTERS = 65536
MAX_NODES = 4096


class Expression(NamedTuple):
    """A text, read.

    Attributes:
        text: The source text.
        statements: Targets and the expressions assigned to them, in order.
        inputs: The names that are read before they are assigned, in order of their first appearance in the text.
        target: Name assigned by the last statement.
    """

    text: str
    statements: tuple[tuple[str, Tree], ...]
    inputs: tuple[str, ...]
    target: str


CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
CASTS = frozenset(d.name for d in ELEMENTS)

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
}
UNARY: Mapping[type[ast.unaryop], str] = {
    ast.UAdd: "positive",
    ast.USub: "negative",
    ast.Invert: "bitwise_invert",
    ast.Not: "logical_not",
}
COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


@functools.lru_cache(maxsize=4096)
def read(text: str) -> Expression:
    """Read a text.

    Raises:
        ShapeError: The text is not an expression of this language; quotes the place and names what is valid there.
    """
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.inputs: dict[str, None] = {}
        self.assigned: set[str] = set()
        self.nodes = 0

    def read(self) -> Expression:
        if len(self.text) > MAX_CHARACTERS:
            raise ShapeError(f"an expression of {len(self.text)} characters; at most {MAX_CHARACTERS}")
        try:
            body = ast.parse("\n".join(line.strip() for line in self.text.strip().splitlines())).body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
            raise ShapeError(f"expression {_shown(self.text)}: {getattr(e, 'msg', None) or e}") from None
        if not body:
            raise ShapeError("expression: the text is empty; write one, as in 'z = alpha * x + y'")
        try:
            statements = tuple(self._statement(statement, len(body) == 1) for statement in body)
        except RecursionError:
            raise ShapeError(f"expression {_shown(self.text)}: nested too deeply; use statements in between") from None
        return Expression(self.text, statements, tuple(self.inputs), statements[-1][0])

    def _statement(self, statement: ast.stmt, alone: bool) -> tuple[str, Tree]:
        match statement:
            case ast.Expr(value=value) if alone:
                return "out", self._tree(value)
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                tree = self._tree(value)
            case ast.AugAssign(target=ast.Name(id=target) as name, op=op, value=value):
                read = ast.Name(name.id, ast.Load(), lineno=name.lineno, col_offset=name.col_offset)
                tree = Apply(self._operator(statement, BINARY.get(type(op))), (self._tree(read), self._tree(value)))
            case _:
                raise self._refused(statement, "write assignments, as in 'z = alpha * x + y'")
        if target in CONSTANTS:
            raise self._refused(statement, f"{target} is a number; choose another name")
        self.assigned.add(target)
        return target, tree

    def _tree(self, node: ast.expr) -> Tree:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ShapeError(f"expression {_shown(self.text)}: more than {MAX_NODES} operations")
        match node:
            case ast.Constant(value=bool() | int() | float() | complex() as value):
                return Literal(value)
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return Apply(self._operator(node, BINARY.get(type(op))), (self._tree(left), self._tree(right)))
            case ast.UnaryOp(op=unary, operand=operand):
                return Apply(UNARY[type(unary)], (self._tree(operand),))
            case ast.BoolOp(op=boolean, values=values):
                name = "logical_and" if isinstance(boolean, ast.And) else "logical_or"
                return functools.reduce(lambda a, b: Apply(name, (a, b)), map(self._tree, values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._comparison(node, ops, [self._tree(n) for n in (left, *others)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Apply("where", (self._tree(test), self._tree(body), self._tree(orelse)))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(node, name, arguments)
        raise self._refused(node, "there are names, numbers, operators and calls such as sqrt(x)")

    def _name(self, name: str) -> Tree:
        if name in CONSTANTS:
            return Literal(CONSTANTS[name])
        if name not in self.assigned:
            self.inputs.setdefault(name)
        return Name(name)

    def _comparison(self, node: ast.expr, ops: list[ast.cmpop], terms: list[Tree]) -> Tree:
        parts = [
            Apply(self._operator(node, COMPARISONS.get(type(op))), pair)
            for op, pair in zip(ops, itertools.pairwise(terms), strict=True)
        ]
        return functools.reduce(lambda a, b: Apply("logical_and", (a, b)), parts)

    def _call(self, node: ast.Call, name: str, given: list[ast.expr]) -> Tree:
        if name == "astype" and len(given) == 2 and isinstance(given[1], ast.Name):
            name, given = given[1].id, given[:1]
        arguments = tuple(map(self._tree, given))
        if name in REDUCTIONS and len(arguments) == 1:
            return Apply(f"reduce:{name}", arguments)
        name = ALIASES.get(name, name)
        if name in CASTS:
            self._counted(node, name, 1, arguments)
            return Apply(f"cast:{name}", arguments)
        if name in SHORTHANDS:
            wanted, written_out = SHORTHANDS[name]
            self._counted(node, name, wanted, arguments)
            return written_out(*arguments)
        function = FUNCTIONS.get(name)
        if function is None:
            there = ", ".join(sorted({*FUNCTIONS, *SHORTHANDS}))
            raise self._refused(node, f"there is no function {name!r}; there are {there}, and the dtypes")
        if name in FOLDS and len(arguments) > 2:
            return functools.reduce(lambda a, b: Apply(name, (a, b)), arguments)
        self._counted(node, name, function.arity, arguments)
        return Apply(name, arguments)

    def _counted(self, node: ast.Call, name: str, wanted: int, arguments: tuple[Tree, ...]) -> None:
        if len(arguments) != wanted:
            raise self._refused(node, f"{name} takes {wanted} arguments, not {len(arguments)}")

    def _operator(self, node: ast.AST, name: str | None) -> str:
        if name is None:
            raise self._refused(node, "there is no such operator")
        return name

    def _refused(self, node: ast.AST, why: str) -> ShapeError:
        place = ast.unparse(node)
        return ShapeError(f"expression {_shown(self.text)}: {_shown(place)}: {why}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


REDUCTIONS = ("sum", "prod", "mean", "min", "max", "any", "all", "argmin", "argmax")
"""Functions of all elements along some axes, each of one argument; ``cb.reduction`` takes them."""
FOLDS = frozenset({"maximum", "minimum", "fmax", "fmin"})
"""Functions that take more than two arguments, one after the other."""
