"""Annotations of generated methods, copied from the fields of a message, and their imports."""

import ast
import functools
import inspect
import re
import sys
from collections import defaultdict
from importlib import import_module
from typing import Any

from callboard.core.op import Op

__all__ = ["Annotations"]

ROLES = {"In", "Out", "InOut"}
REF = "GpuRef[Mode]"


class Annotations:
    """Translates annotations and collects the imports that they need.

    Args:
        package: Package of the messages, for the order of imports.
    """

    ref = REF

    def __init__(self, package: str) -> None:
        self._package = package
        self._used: dict[str, set[str]] = defaultdict(set)

    def use(self, module: str, name: str) -> str:
        """Import a name and return it."""
        self._used[module].add(name)
        return name

    def imports(self, source: str) -> str:
        """The import statements for the names that ``source`` uses: the standard library first, then the others."""
        words = set(re.findall(r"\w+", source))
        used = {module: names & words for module, names in self._used.items() if names & words}
        own = {m: n for m, n in used.items() if m.partition(".")[0] not in sys.stdlib_module_names}
        standard = {m: n for m, n in used.items() if m not in own}
        return "\n".join("".join(map(_statement, sorted(group.items()))) for group in (standard, own) if group)

    def of_field(self, op: type[Op[Any, Any]], field: str) -> tuple[str, str | None]:
        """The annotation of a field, and the source of its default."""
        module, node = _declared(op, field)
        annotation = self._translated(node.annotation, module)
        return annotation, None if node.value is None else self._source(node.value, module)

    def result(self, op: type[Op[Any, Any]]) -> str:
        """The reply type of this message's method; ``Any`` if it may be one of several classes."""
        module, node = _reply(op)
        answer = _evaluated(node, module)
        if getattr(answer, "__args__", None) and not isinstance(answer, type) and "|" in str(answer):
            return self.use("typing", "Any")
        text = self._source(_Operands(tuples=True).visit(node), module)
        generic: tuple[Any, ...] = getattr(answer, "__parameters__", ())
        if isinstance(answer, type) and generic and "Mode" not in text:
            return f"{text}[Mode]"
        return f"{self._reply()}[None]" if answer is None else text

    def _reply(self) -> str:
        return self.use("callboard.core.reply", "Reply")

    def _translated(self, node: ast.expr, module: str) -> str:
        return self._source(_Operands().visit(node), module)

    def _source(self, node: ast.expr, module: str) -> str:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                self._import(part.id, module)
        return ast.unparse(ast.fix_missing_locations(node)).replace("'", '"')

    def _import(self, name: str, module: str) -> None:
        if name in ("GpuRef", "Mode"):
            self.use(f"callboard.core.{'ref' if name == 'GpuRef' else 'mode'}", name)
        elif name == "Sequence":
            self.use("collections.abc", name)
        elif name not in dir(__builtins__) and not hasattr(__import__("builtins"), name):
            self.use(_home(name, module), name)


class _Operands(ast.NodeTransformer):
    """Operands by role to refs; tuples of any length to sequences, unless ``tuples``."""

    def __init__(self, *, tuples: bool = False) -> None:
        self._tuples = tuples

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _ref() if node.id in ROLES | {"GpuRef"} else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name == "Annotated" and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[0])  # type: ignore[no-any-return]
        if name == "GpuRef":
            return _ref()
        if name == "Literal":
            return node
        if name == "tuple" and not self._tuples and isinstance(node.slice, ast.Tuple):
            first, *others = node.slice.elts
            if len(others) == 1 and isinstance(others[0], ast.Constant) and others[0].value is ...:
                return ast.Subscript(ast.Name("Sequence"), self.visit(first))
        return ast.Subscript(node.value, self.visit(node.slice))

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple([self.visit(e) for e in node.elts])


def _ref() -> ast.expr:
    return ast.parse(REF, mode="eval").body


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


def _class(cls: type[Any]) -> ast.ClassDef:
    return next(n for n in ast.walk(_tree(cls.__module__)) if isinstance(n, ast.ClassDef) and n.name == cls.__name__)


def _declared(op: type[Any], field: str) -> tuple[str, ast.AnnAssign]:
    """Locate the declaration of a field: its module and statement."""
    for cls in op.__mro__:
        if field in vars(cls).get("__annotations__", {}):
            for node in _class(cls).body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == field:
                    return cls.__module__, node
    raise TypeError(f"{op.__qualname__}.{field} is declared in no class")


def _reply(op: type[Any]) -> tuple[str, ast.expr]:
    """The last argument of the base that is subscripted: ``R`` of ``Op[A, R]`` or of a family's base ``Product[R]``."""
    for cls in op.__mro__:
        if cls is Op:
            break
        for base in _class(cls).bases:
            if isinstance(base, ast.Subscript):
                last = base.slice.elts[-1] if isinstance(base.slice, ast.Tuple) else base.slice
                return cls.__module__, last
    raise TypeError(f"{op.__qualname__}: its bases do not declare its answer")


def _evaluated(node: ast.expr, module: str) -> Any:
    return eval(ast.unparse(node), vars(import_module(module)))  # source of the package itself


def _home(name: str, module: str) -> str:
    """The module to import a name from: the one that the message's module imports it from, or that module itself."""
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module and any(a.name == name for a in node.names):
            return node.module
    return module


def _statement(item: tuple[str, set[str]]) -> str:
    module, names = item
    ordered = sorted(names, key=lambda n: (not n.isupper() or len(n) == 1, not n[0].isupper(), n.lower()))
    line = f"from {module} import {', '.join(ordered)}\n"
    if len(line) <= 121:
        return line
    return f"from {module} import (\n" + "".join(f"    {n},\n" for n in ordered) + ")\n"
