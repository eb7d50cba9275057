"""``callboard doctor --report``: what a bug report needs, in one file, without secrets and names of the user."""

import getpass
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from callboard.cli.doctor.findings import Findings
from callboard.cli.top.source import Source
from callboard.telemetry import installed
from callboard.telemetry.local.places import sockets

__all__ = ["Cleaner", "report_of", "write_report"]

PREFIX = "CALLBOARD_"
HIDDEN = "<hidden>"

SECRET = re.compile(r"token|secret|passw|credential|api_?key|private|auth|cookie|bearer|dsn", re.IGNORECASE)
"""Names whose values are not shown."""

_PAIR = re.compile(
    r"(?P<name>[\w-]*(?:token|secret|passw\w*|credential|api[_-]?key|authorization|cookie)[\w-]*)"
    r"(?P<quote>[\"']?\s*[:=]\s*[\"']?)(?:bearer\s+|basic\s+)?[^\s\"',;&}]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)
_LOGIN = re.compile(r"(?P<scheme>\w+://)[^/\s@]+@")
_HOME = re.compile(r"(?P<root>/home/|/Users/|[A-Z]:\\Users\\)[^/\\\s:\"']+")
_NUMBERS = r"(?!127\.)(?!0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}"
_ADDRESS = re.compile(rf"(?P<before>(?:\b(?:at|from|to|peer|node|connection) |//|@)){_NUMBERS}\b|\b{_NUMBERS}(?=:\d)")
"""Of an IPv4 address, not of a version with four numbers."""


class Cleaner:
    """Takes secrets, the user's folders and names, and addresses out of texts.

    Args:
        environ: The environment: values of its secrets are removed wherever they occur.
        user: Name of the user; None: that of this process.
        host: Name of the machine; None: this one's.
    """

    def __init__(
        self, environ: Mapping[str, str] = os.environ, user: str | None = None, host: str | None = None
    ) -> None:
        known: dict[str, str] = {}
        for name, value in environ.items():
            if SECRET.search(name) and len(value) >= 6:
                known[value] = HIDDEN
        for folder in (environ.get("HOME"), environ.get("USERPROFILE"), str(Path.home())):
            if folder and len(folder) > 1 and folder != "/root":
                known[folder] = "~"
        words: dict[str, str] = {}
        host = host or socket.gethostname()
        for name, shown in ((host, "<host>"), (host.partition(".")[0], "<host>"), (user or _user(), "<user>")):
            if len(name) >= 3 and name not in ("root", "localhost"):
                words.setdefault(name, shown)
        self._known = sorted(known.items(), key=lambda pair: -len(pair[0]))
        self._words = [(re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), shown) for name, shown in words.items()]

    def text(self, text: str) -> str:
        """The text without them."""
        for value, shown in self._known:
            text = text.replace(value, shown)
        text = _LOGIN.sub(rf"\g<scheme>{HIDDEN}@", text)
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        text = _PAIR.sub(rf"\g<name>\g<quote>{HIDDEN}", text)
        text = _HOME.sub(r"\g<root><user>", text)
        for word, shown in self._words:
            text = word.sub(shown, text)
        return _ADDRESS.sub(lambda each: f"{each['before'] or ''}<address>", text)

    def value(self, value: Any) -> Any:
        """The same for plain data; the value of a field whose name is that of a secret is hidden."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(name)): HIDDEN if SECRET.search(str(name)) and isinstance(each, str) else self.value(each)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value


def report_of(found: Findings, environ: Mapping[str, str] = os.environ, cleaner: Cleaner | None = None) -> bytes:
    """The report as JSON.

    Args:
        found: What ``callboard doctor`` has found.
        environ: The environment.
        cleaner: Takes out what does not belong into it.
    """
    applications, notes = _applications()
    content = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {name: environ[name] for name in sorted(environ) if name.startswith(PREFIX)},
        "findings": msgspec.to_builtins(found),
        "applications": applications,
        "notes": notes,
    }
    cleaned = (cleaner or Cleaner(environ)).value(content)
    return msgspec.json.format(msgspec.json.encode(cleaned), indent=2) + b"\n"


def write_report(path: str | Path, found: Findings) -> None:
    """Write the report to a file, which only the user can read; an existing one is replaced.

    Raises:
        OSError: It cannot be written.
    """
    content = report_of(found)
    new = Path(f"{path}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)


def _applications() -> tuple[list[dict[str, Any]], list[str]]:
    """Devices of observed applications with their last losses and suspects; and what could not be asked."""
    found = [_losses(telemetry.sample()) for telemetry in installed()]
    notes: list[str] = []
    try:
        paths = sockets()
    except (OSError, AttributeError) as e:  # AttributeError: Windows, which has no such sockets
        return found, [f"running applications could not be asked: {e}"]
    for path in paths:
        try:
            with Source(path) as source:
                found.append(_losses(source.snapshot()))
        except (OSError, msgspec.MsgspecError) as e:
            notes.append(f"the application {path.name} did not answer: {type(e).__name__}: {e}")
    return found, notes


def _losses(snapshot: Any) -> dict[str, Any]:
    shown = ("name", "backend", "isolation", "state", "generation", "losses", "completed", "failed", "last_loss")
    devices = [{name: getattr(device, name) for name in shown} for device in snapshot.devices]
    return {"system": snapshot.system, "devices": msgspec.to_builtins(devices)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id
        return ""
