"""``Measured``: the values of an array that were asked for before its extents are known."""

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.ref import GpuRef
from callboard.core.reply import FAILED, Cause, OpFailure, Reply, ReplyPort
from callboard.kernel.recording import recorder

__all__ = ["Measured"]

Array = np.ndarray[Any, Any]


class Measured(Reply[Array]):
    """Waits for the extents of an array, which its op determines, then for its values. Fails as the op does.

    No op that is called earlier than the extents are known can write the array.

    Args:
        port: Port of the device.
        ref: The array.
        get: Asks for its values, once the extents are known.
    """

    __slots__ = ("_ref",)

    def __init__(self, port: ReplyPort, ref: GpuRef[Any], get: "Callable[[GpuRef[Any]], Reply[Array]]") -> None:
        super().__init__(port)
        self._ref: GpuRef[Any] | None = ref  # often nothing else holds it
        weak = weakref.ref(self)

        def known() -> None:
            reply = weak()
            if reply is not None:
                reply._known(get)

        ref.when_done(known)

    def _known(self, get: "Callable[[GpuRef[Any]], Reply[Array]]") -> None:
        ref, self._ref = self._ref, None
        assert ref is not None, "it is done once"
        if ref._state == FAILED:
            self._reject(ref._outcome)
            return
        token = recorder.set(None)  # whatever task is on this thread now
        try:
            values = get(ref)
        except Exception as e:  # of the call, which nobody waits for here
            self._reject(OpFailure(Cause(self._port, functools.partial(_again, e))))
            return
        finally:
            recorder.reset(token)
        values.when_done(lambda: self._passed_on(values))

    def _passed_on(self, values: "Reply[Array]") -> None:
        if values._state == FAILED:
            self._reject(values._outcome)
        else:
            self._resolve(values._outcome)


def _again(error: Exception, _op: object, _ops: int) -> Exception:
    return copy.copy(error)
