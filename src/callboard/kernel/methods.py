"""The methods of a library's API, built at run time from its messages; ``callboard api`` writes their types."""

import functools
import inspect
import linecache
import operator
import re
import types
from collections.abc import Sequence
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from callboard.core.mode import Mode
from callboard.core.op import OPS, Op
from callboard.core.operand import Operand, Role, role_of
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.kernel.api import Api, as_tuple

__all__ = ["answer_of", "api_name", "library_api", "parameters_of", "summary_of"]

RAISES = """\
Raises:
    TypeError: An operand or a setting is of the wrong type. Nothing has been sent, as with all errors of a call.
    ShapeError, UnsupportedOp, DeviceMismatch, GpuRefStale, MailboxFull: At the call.
"""

OpClass = type[Op[Any, Any]]
_UNIONS = (Union, types.UnionType)


def _in_mode(generic: Any) -> Any:
    return generic[Mode]


_REF = _in_mode(GpuRef)


def library_api(module: str, *messages: str, base: type[Api[Any]] = Api) -> Any:
    """The class of a library's methods: one per message, named after the message's tag.

    Args:
        module: Name of the module ``api`` of the package with the messages; the class belongs to it.
        messages: The modules of that package that define messages.
        base: The methods that are written by hand. Messages that it ``covers`` have no method.

    Raises:
        ImportError: There is no such module, or none of them defines a message.
    """
    package = module.rpartition(".")[0]
    names = [f"{package}.{name}" for name in messages]
    for name in names:
        import_module(name)
    ops = {tag: op for tag, op in OPS.copy().items() if op.__module__ in names}
    if not ops:
        raise ImportError(f"{', '.join(names)}: no message is defined there; run: callboard api {package}")
    methods = {tag.partition(".")[2]: _Method(op) for tag, op in ops.items()}
    namespace = {
        "__module__": module,
        "__doc__": f"{_first_line(import_module(package))}\n\n{RAISES}",
        "__slots__": (),
        "__dir__": _names,
        **{own: method for own, method in methods.items() if own not in base.covers},
    }
    name = api_name(next(iter(ops)).partition(".")[0])
    return types.new_class(name, (_in_mode(base),), exec_body=lambda body: body.update(namespace))


def api_name(library: str) -> str:
    """The name of the class of a library's methods: ``"BlasLtApi"`` of ``"blas_lt"``."""
    return "".join(word.title() for word in library.split("_")) + "Api"


def _names(self: Any) -> list[str]:
    """Names for completion. Tools that complete read the dictionary of the class, so all methods are compiled first."""
    names = sorted(object.__dir__(self))
    for name in names:
        getattr(type(self), name, None)
    return names


class _Method:
    """A method that is not compiled yet: it replaces itself in its class when it is first looked up."""

    __slots__ = ("_name", "_op", "_owner")

    def __init__(self, op: OpClass) -> None:
        self._op = op

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if vars(self._owner)[self._name] is self:
            setattr(self._owner, self._name, _compiled(self._op, self._name, self._owner))
        return vars(self._owner)[self._name].__get__(instance, owner)


def _compiled(op: OpClass, name: str, owner: type[Any]) -> types.FunctionType:
    """The method of a message, compiled from source with the message's fields as parameters.

    A function that binds ``**fields`` to a message would cost a tenth of a small call.
    """
    parameters = parameters_of(op)
    first = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    star = next((f"*{p.name}" for p in parameters if p.kind is Parameter.VAR_POSITIONAL), "*")
    defaults = {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}
    taken = ["self", *first, *[star] * (star != "*" or bool(defaults)), *(f"{keyword}=..." for keyword in defaults)]
    passed = [f"{p.name}={_passed(p)}" for p in parameters]
    text = f"def {name}({', '.join(taken)}):\n    return self._submit({op.__name__}({', '.join(passed)}))\n"
    tag = op.__struct_config__.tag
    file = f"<callboard {tag}>"
    # With the name of this module, the method is not taken for the line of the application that called.
    known: dict[str, Any] = {"__name__": __name__, "as_tuple": as_tuple, op.__name__: op}
    exec(compile(text, file, "exec"), known)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    method: types.FunctionType = known[name]
    method.__module__, method.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    method.__kwdefaults__ = defaults
    method.__annotations__ = {**{p.name: p.annotation for p in parameters}, "return": answer_of(op)}
    method.__doc__ = summary_of(op) + _text(op).removeprefix(_first_line(op)) or None
    return method


def _passed(parameter: Parameter) -> str:
    hint = parameter.annotation
    first = get_args(hint)[0] if get_origin(hint) in _UNIONS else hint
    return f'as_tuple("{parameter.name}", {parameter.name})' if get_origin(first) is Sequence else parameter.name


def parameters_of(op: OpClass) -> list[Parameter]:
    """The parameters of a message's method, in order.

    Fields without a default are positional, the others keyword-only; operands become ``GpuRef[Mode]``, tuples of any
    length sequences.
    """
    made = []
    for field in msgspec.structs.fields(op):
        if field.name in op.hidden:
            continue
        hint = _translated(field.type)
        if field.name == op.variadic:
            made.append(Parameter(field.name, Parameter.VAR_POSITIONAL, annotation=_REF))
        elif field.required:
            made.append(Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, annotation=hint))
        else:
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            made.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return sorted(made, key=lambda p: p.kind)


def answer_of(op: OpClass) -> Any:
    """The type that the message's method returns; ``Any`` if it may be one of several classes."""
    reply: Any = Reply
    answer = _declared_answer(op)
    if answer is None or answer is type(None):
        return reply[None]
    if not isinstance(answer, type) and "|" in str(answer):
        return Any
    answer = _translated(answer, sequences=False)
    if isinstance(answer, type) and getattr(answer, "__parameters__", None):
        answer = _in_mode(answer)
    return reply[answer] | _REF if op.value else answer


def _declared_answer(op: OpClass) -> Any:
    """``R`` of ``Op[A, R]``, or of a family's base ``Product[R]``."""
    for cls in op.__mro__:
        for base in vars(cls).get("__orig_bases__", ()):
            if get_args(base):
                return get_args(base)[-1]
    raise TypeError(f"{op.__qualname__}: its bases do not declare its answer")


def _translated(hint: Any, *, sequences: bool = True) -> Any:
    """Refs in place of operands; with ``sequences``, sequences in place of tuples of any length."""
    origin, parts = get_origin(hint), get_args(hint)
    if GpuRef in (hint, origin):
        return _REF
    if origin is Annotated:
        if role_of(hint) in (None, Role.SCALAR):
            return hint
        return _REF if parts[0] is Operand else _translated(parts[0])
    if origin in _UNIONS:
        sequences = sequences and {type(None), *parts} == {type(None), parts[0]}  # others are named types: Extents
        return functools.reduce(operator.or_, (_translated(part, sequences=sequences) for part in parts))
    if origin is tuple and sequences and parts[1:] == (...,):
        return types.GenericAlias(Sequence, (_translated(parts[0]),))
    if origin is tuple:
        return types.GenericAlias(tuple, tuple(p if p is ... else _translated(p, sequences=sequences) for p in parts))
    return hint


def summary_of(op: OpClass) -> str:
    """The first line of the message's docstring, without other names of the op in brackets."""
    return re.sub(r" \(``[\w.]+``[^()]*\)", "", _first_line(op))


def _first_line(documented: object) -> str:
    return _text(documented).partition("\n")[0]


def _text(documented: object) -> str:
    """The docstring; ``""`` if Python runs without docstrings, when ``getdoc`` would return a base's."""
    return inspect.cleandoc(documented.__doc__ or "")
