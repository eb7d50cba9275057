"""Interned signatures: the bytes of a signature cross the wire once per host, then a number stands for them.

A signature names the op, the layouts and the settings; that of a transform with a callback contains its source,
thousands of characters. The first :class:`~callboard.device.protocol.messages.Calls` with a signature contains all of
it, and both ends number signatures in order of arrival. ``Calls.known`` is the number of signatures that the sender has
numbered before, so that a disagreement is noticed; 0 starts again, which also bounds both tables.
"""

from struct import Struct

from callboard.device.protocol.messages import Call, Calls, ProtocolError

__all__ = ["MOST_BYTES", "MOST_SIGNATURES", "SignatureReader", "SignatureWriter"]

NUMBER = Struct("<BI")
MARK = 0xC1
"""First byte of a number in the place of a signature: it begins no MessagePack value, and a signature is one."""

MOST_SIGNATURES = 1 << 16
MOST_BYTES = 16 << 20
"""The table starts again with the message after the one that fills it; of the signatures, or of their bytes."""


class SignatureWriter:
    """The sender's table: signatures that the other end has, each with its number."""

    __slots__ = ("_bytes", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[bytes, bytes] = {}
        self._bytes = 0

    def shorten(self, message: Calls) -> Calls:
        """Return the message in its wire form.

        The definitions in it must be sent, or else :meth:`forget` must be called.
        """
        numbers = self._numbers
        if len(numbers) >= MOST_SIGNATURES or self._bytes >= MOST_BYTES:
            self.forget()
        known = len(numbers)
        calls = []
        for call in message.calls:
            short = numbers.get(call.signature)
            if short is not None:
                call = Call(call.id, short, call.bindings, call.numbers, call.outputs, call.withdrawn)
            elif call.signature:  # a free has none
                numbers[call.signature] = NUMBER.pack(MARK, len(numbers))
                self._bytes += len(call.signature)
            calls.append(call)
        return Calls(calls, known)

    def forget(self) -> None:
        """Start again with the next message."""
        self._numbers.clear()
        self._bytes = 0


class SignatureReader:
    """Table of the receiver. Equal signatures are returned as one object, whose hash Python computes once."""

    __slots__ = ("_signatures",)

    def __init__(self) -> None:
        self._signatures: dict[bytes, bytes] = {}

    def restore(self, message: Calls) -> None:
        """Put whole signatures into the message.

        Raises:
            ProtocolError: It counts on signatures that have not come, or on others than those.
        """
        signatures = self._signatures
        if message.known == 0:
            signatures.clear()
        elif message.known != len(signatures):
            raise ProtocolError(f"calls refer to {message.known} signatures, but {len(signatures)} were sent")
        for call in message.calls:
            signature = call.signature
            if not signature:
                continue
            if signature[0] != MARK:
                signatures[NUMBER.pack(MARK, len(signatures))] = signature
                continue
            whole = signatures.get(signature)
            if whole is None:
                raise ProtocolError(f"op {call.id}: signature {signature.hex()} was not sent")
            call.signature = whole
