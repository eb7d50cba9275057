"""``Tracer``: times of sampled requests, as the trace extension of the Open Inference Protocol sets them.

Source: Triton's trace extension. Each trace is one line of JSON.
"""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callboard.serve.errors import BadRequest

__all__ = ["Trace", "Tracer"]

OFF, TIMESTAMPS = "OFF", "TIMESTAMPS"
DEFAULTS: dict[str, Any] = {"trace_level": [OFF], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0"}
LEAST = {"trace_rate": 1, "trace_count": -1, "log_frequency": 0}

_log = logging.getLogger("callboard.serve")


class Trace:
    """One request that is traced."""

    def __init__(self, tracer: "Tracer", head: dict[str, Any]) -> None:
        self._tracer = tracer
        self._head = head
        self._times: list[dict[str, Any]] = []
        self.mark("REQUEST_START")

    def mark(self, name: str) -> None:
        """Note the time of a step, in nanoseconds of the monotonic clock."""
        self._times.append({"name": name, "ns": time.monotonic_ns()})

    def end(self) -> None:
        """The request has ended."""
        self.mark("REQUEST_END")
        self._tracer.write({**self._head, "timestamps": self._times})


class Tracer:
    """Chooses requests, and appends their traces to a file.

    ``trace_rate`` is the number of requests per trace, ``trace_count`` the number of traces still to be written (-1: no
    bound), and ``log_frequency`` the number of traces that are collected before they are written (0: none). Settings of
    a model take precedence over global ones.

    Args:
        path: Path of the file; it is created when the first trace is written.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._all = dict(DEFAULTS)
        self._of: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, int] = {}
        self._number = 0
        self._lines: list[str] = []

    def settings(self, model: str | None = None) -> dict[str, Any]:
        """The settings of a model, or the global ones."""
        own = {} if model is None else self._of.get(model, {})
        return {**self._all, **own, "trace_file": str(self._path)}

    def update(self, given: Mapping[str, Any], model: str | None = None) -> dict[str, Any]:
        """Change some settings, all or none; None restores the default, or for a model the global setting.

        Returns the settings.

        Raises:
            BadRequest: A setting is not known, not to be changed, or has a value that does not fit.
        """
        checked = {name: _checked(name, value) for name, value in given.items()}
        target = self._all if model is None else self._of.setdefault(model, {})
        for name, value in checked.items():
            if value is not None:
                target[name] = value
            elif model is None:
                target[name] = DEFAULTS[name]
            else:
                target.pop(name, None)
        self.flush()
        return self.settings(model)

    def begin(self, model: str, version: str) -> Trace | None:
        """Count a request to a model; its trace, if it is to have one."""
        own = self._of.get(model, {})
        settings = {**self._all, **own} if own else self._all
        if settings["trace_level"] == [OFF] or settings["trace_count"] == "0":
            return None
        seen = self._seen[model] = self._seen.get(model, 0) + 1
        if seen % int(settings["trace_rate"]):
            return None
        if settings["trace_count"] != "-1":
            source = own if "trace_count" in own else self._all
            source["trace_count"] = str(int(source["trace_count"]) - 1)
        self._number += 1
        return Trace(self, {"id": self._number, "model_name": model, "model_version": version})

    def write(self, trace: dict[str, Any]) -> None:
        """Keep a trace until there are ``log_frequency`` of them, then write them."""
        self._lines.append(json.dumps(trace) + "\n")
        if len(self._lines) >= max(1, int(self.settings(trace["model_name"])["log_frequency"])):
            self.flush()

    def flush(self) -> None:
        """Write the collected traces. A file that cannot be written ends tracing, with a warning; requests continue."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as e:
            self._all["trace_level"], self._of = [OFF], {}
            _log.warning("tracing is off: %d traces could not be written to %s: %s", len(lines), self._path, e)


def _checked(name: str, value: Any) -> Any:
    """Return a setting's value in the form that clients read."""
    if name not in DEFAULTS:
        known = ", ".join(DEFAULTS)
        raise BadRequest(f"the trace setting {name!r} cannot be changed over HTTP; those that can are {known}")
    if value is None:
        return None
    if name == "trace_level":
        levels = [value] if isinstance(value, str) else value
        if not isinstance(levels, list) or levels not in ([OFF], [TIMESTAMPS]):
            raise BadRequest(f'trace_level must be ["{OFF}"] or ["{TIMESTAMPS}"], but is {value!r}')
        return list(levels)
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19) or int(text) < LEAST[name]:
        raise BadRequest(f"{name} must be an integer of at least {LEAST[name]}, but is {value!r}")
    return str(int(text))
