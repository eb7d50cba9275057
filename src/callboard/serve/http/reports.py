"""``Reports``: errors as clients see them, and as the log has them: once per kind and second."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from callboard.actors.errors import printable
from callboard.serve.errors import Refusal, refusal_of
from callboard.serve.http.noted import Noted

__all__ = ["Reports"]

EVERY = 1.0
"""Seconds in which errors of one kind are logged once."""

_log = logging.getLogger("callboard.serve")

Kind = tuple[str | None, type[BaseException], str]
"""Model, type, and the line that raised the error."""


class Reports:
    """Turns errors into refusals, and logs them.

    The first error of a kind is logged with its traceback. Others of that kind within :data:`EVERY` seconds are
    counted, and their number is logged at the end of that time.

    Args:
        call_later: Calls a function in some seconds; None: the running loop's. For tests.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Any] | None = None) -> None:
        self._call_later = call_later
        self._suppressed: dict[Kind, int] = {}
        self._last: dict[Kind, dict[str, Any]] = {}

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
        for kind in list(self._suppressed):
            self._close(kind)

    def _failed(self, error: BaseException, refusal: Refusal, noted: Noted) -> None:
        kind = noted.model, type(error), _raised_at(error)
        if kind in self._suppressed:
            self._suppressed[kind] += 1
            self._last[kind] = noted.fields()
            return
        self._suppressed[kind] = 0
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

    def _close(self, kind: Kind) -> None:
        count = self._suppressed.pop(kind, 0)
        last = self._last.pop(kind, None)
        if last is not None:
            model, error, line = kind
            where = "requests" if model is None else f"requests to model {model!r}"
            _log.warning(
                "%d more %s failed with %s at %s within %g s",
                count,
                where,
                error.__name__,
                line,
                EVERY,
                extra={**last, "suppressed": count},
            )


def _raised_at(error: BaseException) -> str:
    step = error.__traceback__
    if step is None:
        return "an unknown line"
    while step.tb_next is not None:
        step = step.tb_next
    return f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
