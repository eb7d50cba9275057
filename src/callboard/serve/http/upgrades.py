"""``Parser``: httptools' parser, for which a request to upgrade the connection is a request like others.

A server may ignore an upgrade (RFC 9110, 7.8), as this one does each; curl and Java's client ask for one to HTTP/2. But
httptools takes what follows such a head for the other protocol, and so skips the body.
"""

from typing import Any

import httptools

__all__ = ["Parser"]

IGNORED = b"upgrade"


class Parser:
    """The methods of ``HttpRequestParser`` that uvicorn calls.

    The head of a request that asks for an upgrade is read twice, the second time without that.

    Args:
        protocol: Gets the parser's calls, and has the ``url`` and the ``headers`` that they gave.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._begin()

    @property
    def reads_again(self) -> bool:
        """The head that is complete asks for an upgrade, and will be read again."""
        return bool(self.should_upgrade()) and self.get_method() != b"CONNECT"  # which is an upgrade by itself

    def feed_data(self, data: bytes) -> None:
        """Parse what came.

        Raises:
            HttpParserError: It is no HTTP.
            HttpParserUpgrade: A request has the method CONNECT.
        """
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as e:
                if not self.reads_again:
                    raise
                data = self._head() + data[e.args[0] :]
            self._begin()

    def _begin(self) -> None:
        parser = self._parser = httptools.HttpRequestParser(self._protocol)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does, for a pipeline
        self.should_upgrade = parser.should_upgrade
        self.should_keep_alive = parser.should_keep_alive
        self.get_method = parser.get_method
        self.get_http_version = parser.get_http_version

    def _head(self) -> bytes:
        line = b"%b %b HTTP/%b" % (self.get_method(), self._protocol.url, self.get_http_version().encode())
        fields = [b"%b: %b" % field for field in self._protocol.headers if field[0] != IGNORED]
        return b"\r\n".join([line, *fields, b"", b""])
