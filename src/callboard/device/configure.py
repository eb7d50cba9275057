"""Settings of a device: argument, else environment, else default."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.device.config import DeviceConfig, HostConfig

__all__ = ["ENVIRONMENT", "device_config"]

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
        return msgspec.convert(device, DeviceConfig)
    except msgspec.ValidationError as e:
        raise ValueError(f"settings of a device: {e}") from None


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
