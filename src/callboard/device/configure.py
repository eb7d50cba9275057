"""Settings of a device: argument, else environment, else default."""

import os
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec

from callboard.core.op import OPS
from callboard.core.settings import words_of
from callboard.device.config import DeviceConfig, HostConfig

__all__ = ["ENVIRONMENT", "check_libraries", "device_config"]

ENVIRONMENT = "CALLBOARD_"
"""Prefix of the variables: ``CALLBOARD_ISOLATION=process`` sets ``isolation`` for every device."""

_DEVICE = DeviceConfig.__struct_fields__
_HOST = HostConfig.__struct_fields__


def device_config(
    isolation: str, base: DeviceConfig | None, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> DeviceConfig:
    """The settings that hold.

    Args:
        isolation: What the backend prefers.
        base: Settings to start from; the environment then counts for nothing.
        options: Fields of :class:`DeviceConfig` and :class:`HostConfig`, by name.
        environ: The environment.

    Raises:
        ValueError: An unknown option, or a value that does not fit; names both.
    """
    unknown = [k for k in options if k not in _DEVICE and k not in _HOST]
    if unknown:
        known = sorted({*_DEVICE, *_HOST} - {"host"})
        raise ValueError(f"unknown option {unknown[0]!r}; there are {', '.join(known)}")
    device = msgspec.to_builtins(base or DeviceConfig())
    host = device["host"]
    if base is None:
        for target, fields in ((device, _DEVICE), (host, _HOST)):
            for name in fields:
                text = environ.get(ENVIRONMENT + name.upper())
                if text is not None and name != "host":
                    target[name] = _parsed(text)
    for name, value in options.items():
        if name == "host":
            host.update(msgspec.to_builtins(value))
        else:
            (device if name in _DEVICE else host)[name] = value
    if device["isolation"] is None:
        device["isolation"] = isolation
    try:
        config = msgspec.convert(device, DeviceConfig)
    except msgspec.ValidationError as e:
        raise ValueError(f"settings of a device: {_told(str(e), device)}") from None
    if config.hang_after <= config.host.interval:
        raise ValueError(
            f"hang_after is {config.hang_after:g} and interval {config.host.interval:g}: a host that tells of itself "
            "so rarely would count as hung; hang_after must be larger"
        )
    return config


def _told(why: str, device: Mapping[str, Any]) -> str:
    """What msgspec says about a field, with the field's name and value, and the words that it takes."""
    found = re.search(r" - at `\$\.(host\.)?(\w+)", why)
    if found is None:
        return why
    name = found[2]
    values, cls = (device["host"], HostConfig) if found[1] else (device, DeviceConfig)
    words = words_of(get_type_hints(cls, include_extras=True)[name])
    return f"{name} = {values[name]!r}: " + (
        f"use one of {', '.join(map(repr, words))}" if words else why[: found.start()]
    )


def check_libraries(config: DeviceConfig) -> None:
    """See that there are the libraries that settings name; their messages must have been imported.

    Raises:
        ValueError: One that nobody serves.
    """
    libraries = sorted({tag.partition(".")[0] for tag in OPS})
    for setting, names in (("warm", config.host.warm), ("priorities", config.host.priorities)):
        for name in names:
            if name not in libraries:
                raise ValueError(f"{setting} names {name!r}; there are {', '.join(libraries)}")


def _parsed(text: str) -> Any:
    """Numbers, ``none``, ``true`` and ``false`` as such; anything else as text."""
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
