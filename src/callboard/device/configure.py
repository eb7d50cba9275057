"""Settings of a device: argument, else environment, else default."""

import difflib
import functools
import logging
import os
import re
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

import msgspec

from callboard.core import plugins
from callboard.core.settings import words_of
from callboard.device.config import DeviceConfig, HostConfig, defaults
from callboard.device.strategies.carried import carried
from callboard.device.strategies.completion import CompletionStrategy

__all__ = [
    "ENVIRONMENT",
    "check_environment",
    "check_libraries",
    "device_config",
    "differing",
    "unknown_variables",
    "warn_of_unknown_variables",
]

log = logging.getLogger("callboard")

ENVIRONMENT = "CALLBOARD_"
"""Prefix of the variables: ``CALLBOARD_ISOLATION=process`` sets ``isolation`` for every device."""

_DEVICE = DeviceConfig.__struct_fields__
_HOST = HostConfig.__struct_fields__
_OTHERS: dict[str, tuple[str, ...] | None] = {
    "BLAS_THREADS": ("auto", "off"),
    "CACHE_DIR": None,
    "CHILD_PATH": None,
    "COMMIT": None,
    "CPU_COMPILER": None,
    "DEVICE": None,
    "EXTRAS": None,
    "GPU_CARDS": None,
    "GPU_REPORT": None,
    "GUARDED": None,
    "LOG": ("json", "text"),
    "MACHINE": None,
    "NODE_TOKEN": None,
    "REACHED_AT": None,
    "REQUIRE": ("cuda",),
    "TELEMETRY": None,
    "TENSOR_ENGINE": ("auto", "cutensor", "builtin"),
    "TEST_RAY": None,
    "TEST_TORCH": None,
}
"""Variables that are not settings of a device, with the words that they take (None: any text)."""

_AS_JSON = {"warm": '["memory", "blas"]', "priorities": '{"blas": 1}'}
"""Settings of a device that are no single value, with an example of their text."""

_CURES = {
    "completion": "use one of 'polled', 'host_fn', 'sync', None, or an object of a class that derives from "
    "cb.CompletionStrategy",
    "streams": "use one of 'chained', 'per_actor', 'single', 'pooled', or an object of a class that derives from "
    "cb.StreamAllocator",
    "standby": "use one of 'hot', 'warm', None, or a number of standbys, 0 to 64, or both: ('hot', 2), in the "
    'environment ["hot", 2]',
}
"""What a setting takes that has words and other values."""

_NUMBERS = {"CACHE_BYTES": range(2**63), "CPU_DEVICES": range(1, 1025)}
"""Variables that are not settings of a device and take an integer, with its range."""


def device_config(
    isolation: str, base: DeviceConfig | None, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> DeviceConfig:
    """The settings of a device: options over the environment over the context's defaults over those of the classes.

    Args:
        isolation: Default isolation of the backend.
        base: Settings to start from; the environment is then not read.
        options: Fields of :class:`DeviceConfig` and :class:`HostConfig`, by name.
        environ: The environment.

    Raises:
        ValueError: An unknown option, or a value that does not fit; names both.
    """
    unknown = [k for k in options if k not in _DEVICE and k not in _HOST]
    if unknown:
        known = sorted({*_DEVICE, *_HOST} - {"host"})
        raise ValueError(f"unknown option {unknown[0]!r}; use one of {', '.join(known)}")
    device = msgspec.to_builtins(base or DeviceConfig(), enc_hook=_strategy)
    if base is None:
        device.update(defaults.get())
    host = device["host"]
    variables: dict[str, str] = {}
    if base is None:
        for target, fields in ((device, _DEVICE), (host, _HOST)):
            for name in fields:
                variable = ENVIRONMENT + name.upper()
                text = environ.get(variable)
                if text is not None and name != "host":
                    target[name] = _parsed(text)
                    variables[name] = f" (set by {variable} in the environment)"
    for name, value in options.items():
        variables.pop(name, None)
        if name == "host":
            host.update(msgspec.to_builtins(value, enc_hook=_strategy))
        else:
            (device if name in _DEVICE else host)[name] = value
    for name in ("completion", "streams"):
        if not isinstance(host[name], dict):  # else it was given in a HostConfig
            host[name] = msgspec.to_builtins(carried(name, host[name]))
    if device["isolation"] is None:
        device["isolation"] = defaults.get().get("isolation", isolation)
    try:
        config = msgspec.convert(device, DeviceConfig)
    except msgspec.ValidationError as e:
        raise ValueError(f"settings of a device: {_told(str(e), device, variables)}") from None
    if config.hang_after <= config.host.interval:
        raise ValueError(
            f"hang_after is {config.hang_after:g} and interval {config.host.interval:g}: a host whose heartbeats "
            "are so rare would count as hung; hang_after must be larger"
        )
    return config


def _strategy(value: Any) -> Any:
    """A strategy that was given in a HostConfig."""
    return carried("completion" if isinstance(value, CompletionStrategy) else "streams", value)


def _told(why: str, device: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """Msgspec's message about a field, with the field's name and value and the words that it takes."""
    found = re.search(r" - at `\$\.(host\.)?(\w+)", why)
    if found is None:
        return why
    name = found[2]
    values, cls = (device["host"], HostConfig) if found[1] else (device, DeviceConfig)
    words = words_of(get_type_hints(cls, include_extras=True)[name])
    cure = _CURES.get(name) or (f"use one of {', '.join(map(repr, words))}" if words else why[: found.start()])
    if name in variables and name in _AS_JSON:
        cure += f"; write JSON, such as {_AS_JSON[name]}"
    return f"{name} = {values[name]!r}{variables.get(name, '')}: {cure}"


def check_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Check the values of the variables.

    Raises:
        ValueError: A variable has an invalid value; names both, and the valid values.
    """
    for name, words in _OTHERS.items():
        value = environ.get(ENVIRONMENT + name)
        if value and words is not None and value not in words:
            raise ValueError(f"{ENVIRONMENT}{name} is {value!r}; use {' or '.join(map(repr, words))}")
    for name, numbers in _NUMBERS.items():
        value = environ.get(ENVIRONMENT + name)
        if value and not (value.isdecimal() and int(value) in numbers):
            last = "" if numbers.stop == 2**63 else f" to {numbers[-1]}"
            raise ValueError(f"{ENVIRONMENT}{name} is {value!r}; use an integer from {numbers.start}{last}")
    device_config("thread", None, {}, environ)


def differing(have: DeviceConfig, wanted: DeviceConfig) -> str:
    """The settings in which two configurations differ, as a text: ``preview is 1000, not 0``."""
    pairs = [
        (name, getattr(a, name), getattr(b, name))
        for a, b, names in ((have, wanted, _DEVICE), (have.host, wanted.host, _HOST))
        for name in names
        if name != "host"
    ]
    return ", ".join(f"{name} is {one!r:.80}, not {other!r:.80}" for name, one, other in pairs if one != other)


def unknown_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Unknown variables with callboard's prefix, each with a cure."""
    known = [name.upper() for name in (*_DEVICE, *_HOST, *_OTHERS, *_NUMBERS) if name != "host"]
    found: dict[str, str] = {}
    for variable in sorted(environ):
        name = variable.removeprefix(ENVIRONMENT)
        if name != variable and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            cure = f"is {ENVIRONMENT}{near[0]} meant?" if near else "docs/configuration.md lists all"
            found[variable] = f"unknown; {cure}"
    return found


def warn_of_unknown_variables() -> None:
    """Log each of :func:`unknown_variables`, once per process."""
    for variable, why in unknown_variables().items():
        _warn(variable, why)


@functools.cache
def _warn(variable: str, why: str) -> None:
    log.warning("environment variable %s: %s", variable, why)


def check_libraries(config: DeviceConfig, libraries: Collection[str]) -> None:
    """Check that there are the libraries that settings name.

    Args:
        config: The settings.
        libraries: Names of the backend's libraries; a library of another backend may be named too.

    Raises:
        ValueError: A setting names a library that does not exist.
    """
    for setting, names in (("warm", config.host.warm), ("priorities", config.host.priorities)):
        for name in names:
            if name not in libraries and name not in (known := plugins.library_names()):
                there = ", ".join(sorted({*known, *libraries}))
                raise ValueError(f"{setting} names the unknown library {name!r}; use one of {there}")


def _parsed(text: str) -> Any:
    """Numbers, ``none``, ``true``, ``false`` and JSON's arrays and objects as such; anything else as text."""
    if text.lstrip().startswith(("[", "{")):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    lowered = text.strip().lower()
    if lowered in ("none", ""):
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
