"""``Reports``: errors as clients see them, and as the log has them: once per kind and second, with all ids."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from callboard.actors.errors import printable
from callboard.serve.errors import Refusal, refusal_of
from callboard.serve.http.noted import Noted

__all__ = ["Reports"]

EVERY = 1.0
"""Seconds in which errors of one kind are logged once."""

_log = logging.getLogger("callboard.serve")

MOST = 20
"""Kinds of one model, type and line that are told apart, and ids that a line of the log names, at most."""

Kind = tuple[str | None, type[BaseException], str, str | None]
"""Model, type, the line that raised the error, and its text and those of its causes; None for any further text."""


@dataclass
class _Counted:
    """Errors of a kind after the first one."""

    count: int = 0
    ids: list[str] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def add(self, noted: Noted) -> None:
        self.count += 1
        self.last = noted.fields()
        if len(self.ids) < MOST:
            self.ids.append(noted.id)

    def named(self) -> str:
        more = self.count - len(self.ids)
        return ", ".join(self.ids) + (f" and {more} more" if more else "")


class Reports:
    """Turns errors into refusals, and logs them.

    The first error of a kind is logged with its traceback. Others of that kind within :data:`EVERY` seconds are
    counted, and their number and ids are logged at the end of that time.

    Args:
        call_later: Calls a function in some seconds; None: the running loop's. For tests.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Any] | None = None) -> None:
        self._call_later = call_later
        self._counted: dict[Kind, _Counted] = {}

    def refused(self, error: BaseException, noted: Noted, *, public: bool = False) -> Refusal:
        """The answer to a request that failed; the cause is logged.

        Args:
            error: The cause.
            noted: The request.
            public: It is a probe: its failure is in the log at level DEBUG only.
        """
        refusal = refusal_of(error, noted.model)
        noted.status = refusal.status
        if not public and (refusal.status >= 500 or refusal.status == 422):
            refusal = replace(refusal, reason=f"{refusal.reason}; request {noted.id}")
        if refusal.status < 500 or public:
            if _log.isEnabledFor(logging.DEBUG):
                cause = None if error.__cause__ is None else error
                _log.debug(
                    "%s: %d %s", noted.path, refusal.status, refusal.reason, exc_info=cause, extra=noted.fields()
                )
        else:
            self._failed(error, refusal, noted)
        return refusal

    def left(self, noted: Noted) -> None:
        """A client left before its response."""
        _log.info("%s: %d the client left", noted.path, noted.status, extra=noted.fields())

    def flush(self) -> None:
        """Log what was counted and not logged yet."""
        for kind in list(self._counted):
            self._close(kind)

    def _failed(self, error: BaseException, refusal: Refusal, noted: Noted) -> None:
        kind = self._kind(error, noted)
        if kind in self._counted:
            self._counted[kind].add(noted)
            return
        self._counted[kind] = _Counted()
        later = self._call_later or asyncio.get_running_loop().call_later
        later(EVERY, lambda: self._close(kind))
        text = f"{type(error).__name__}: {printable(error)}"
        _log.warning(
            "%s: %d %s; request %s",
            noted.path,
            refusal.status,
            text,
            noted.id,
            exc_info=None if refusal.told else error,
            extra=noted.fields(),
        )

    def _kind(self, error: BaseException, noted: Noted) -> Kind:
        family = noted.model, type(error), _raised_at(error)
        kind = (*family, _texts(error))
        if kind not in self._counted and sum(each[:3] == family for each in self._counted) >= MOST:
            return (*family, None)
        return kind

    def _close(self, kind: Kind) -> None:
        counted = self._counted.pop(kind, None)
        if counted is not None and counted.count:
            model, error, line, _ = kind
            where = "requests" if model is None else f"requests to model {model!r}"
            _log.warning(
                "%d more %s failed with %s at %s within %g s: requests %s",
                counted.count,
                where,
                error.__name__,
                line,
                EVERY,
                counted.named(),
                extra={**counted.last, "suppressed": counted.count, "request_ids": list(counted.ids)},
            )


def _texts(error: BaseException) -> str:
    """The text of an error, and those of its causes."""
    found = [printable(error)]
    cause = error.__cause__
    while cause is not None and len(found) < MOST:
        found.append(printable(cause))
        cause = cause.__cause__
    return "\n".join(found)


def _raised_at(error: BaseException) -> str:
    step = error.__traceback__
    if step is None:
        return "an unknown line"
    while step.tb_next is not None:
        step = step.tb_next
    return f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
