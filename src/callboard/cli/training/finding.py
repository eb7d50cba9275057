"""Selection of the run: one of a module, or one that a function of it makes, with settings from the command line."""

import asyncio
import dataclasses
import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.cli.parts.named import find
from callboard.train.running.run import TrainingRun

__all__ = ["SETTABLE", "find_run", "settings_of"]

SETTABLE = {
    field.name: field.type
    for field in dataclasses.fields(TrainingRun)
    if field.name not in ("trainer", "data", "validate", "metrics", "monitor", "loggers")
}
"""Fields of a run that ``--set`` may change: numbers, texts and truth values."""


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """``["lr=0.1"]`` as a dict.

    Raises:
        ValueError: One is not of the form ``key=value``.
    """
    pairs = [text.partition("=") for text in given]
    for text, (key, sign, _) in zip(given, pairs, strict=True):
        if not key.strip() or not sign:
            raise ValueError(f"--set {text!r} is no setting; give KEY=VALUE, such as batch_size=64")
    return {key.strip(): value.strip() for key, _, value in pairs}


async def find_run(where: str, settings: dict[str, str]) -> TrainingRun:
    """The run that ``module:name`` names, with these settings.

    A function, also an async one, is called with those that are parameters of it; others are fields of the run.

    Raises:
        ValueError: There is no such module, or no run of that name in it; a setting that is not known, or does not fit.
    """
    known = "callboard.TrainingRun (a trainer with its data)"
    found: Any = find(where, TrainingRun, "a run", "app:run", known, also=(types.FunctionType,))
    rest, takes = dict(settings), {}
    if not isinstance(found, TrainingRun):
        takes = _parameters(found)
        arguments = {key: _converted(key, rest.pop(key), takes[key]) for key in settings if key in takes}
        missing = [name for name, one in inspect.signature(found).parameters.items() if _is_needed(one, arguments)]
        if missing:
            raise ValueError(f"{where} needs {', '.join(missing)}; give --set {missing[0]}=VALUE, or a default")
        made = await found(**arguments) if inspect.iscoroutinefunction(found) else await _apart(found, arguments)
        if not isinstance(made, TrainingRun):
            raise ValueError(f"{where} gave a {type(made).__name__}; it must give a {known}")
        found = made
    changed = {}
    for key, value in rest.items():
        if key not in SETTABLE:
            raise ValueError(f"--set {key}: it is no setting of {where}; these are: {', '.join([*takes, *SETTABLE])}")
        changed[key] = _converted(key, value, SETTABLE[key])
    run: TrainingRun = dataclasses.replace(found, **changed)
    return run


async def _apart(function: Any, arguments: dict[str, Any]) -> Any:
    """Call a plain function, which may load data for long, and may give an awaitable."""
    made = await asyncio.to_thread(function, **arguments)
    return await made if inspect.isawaitable(made) else made


def _parameters(function: Any) -> dict[str, Any]:
    """The types of the parameters that a setting can name: those they are annotated with, or of their defaults."""
    hints = typing.get_type_hints(function)
    found = {}
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            of_default = str if one.default in (one.empty, None) else type(one.default)
            found[name] = hints.get(name, of_default)
    return found


def _is_needed(one: inspect.Parameter, arguments: dict[str, Any]) -> bool:
    return (
        one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in arguments
    )


def _converted(key: str, text: str, kind: Any) -> Any:
    try:
        if text.lower() in ("none", "null"):
            return msgspec.convert(None, kind)
        if kind in (str, Any) or str in typing.get_args(kind):
            return text
        return msgspec.convert(text, kind, strict=False, dec_hook=lambda cls, value: cls(value))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ValueError(f"--set {key}={text}: {error}") from error
