"""``callboard host``: serve the devices of this machine to applications on others."""

import argparse
import asyncio
import logging
import os
import signal
import ssl
import sys
from pathlib import Path

from callboard.device.supervision.remote.node import NodeServer
from callboard.multi_device.sharding.shared import Regions

__all__ = ["add_host"]

TOKEN = "CALLBOARD_NODE_TOKEN"


def add_host(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "host",
        help="serve the devices of this machine to applications on others",
        description="Starts context hosts for applications on other machines, which open devices with "
        f'cb.device("cuda", node=cb.Node("host:port", token=...)). The token is read from --token-file or {TOKEN}; an '
        "application that knows it can run code here. SIGTERM and Ctrl-C end all hosts.",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:4600", metavar="HOST:PORT", help="default: %(default)s; port 0 for any free one"
    )
    parser.add_argument("--token-file", type=Path, help="file with the token, at least 16 characters")
    parser.add_argument("--tls-cert", type=Path, help="file with the certificate and its chain, in PEM")
    parser.add_argument("--tls-key", type=Path, help="file with its key, if it is not in the same file")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    host, _, port = given.listen.rpartition(":")
    try:
        if not host or not port.isdecimal():
            raise ValueError(f"--listen is {given.listen!r}; use HOST:PORT")
        token = os.environ.get(TOKEN, "")
        if given.token_file is not None:
            from callboard.cli.parts.tokens import read_token  # brings the servers, which a node has no use for

            token = read_token(given.token_file)
        if not token:
            raise ValueError(f"there is no token: give --token-file, or set {TOKEN}")
        tls = None
        if given.tls_cert is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(given.tls_cert, given.tls_key)
        server = NodeServer(token, tls, Regions())
        return asyncio.run(_serve(server, host.strip("[]"), int(port), tls is not None))
    except (OSError, ValueError) as e:
        print(f"callboard host: {e}", file=sys.stderr)
        return 2


async def _serve(server: NodeServer, host: str, port: int, encrypted: bool) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    at, port = await server.start(host, port)
    print(f"listening at {at}:{port}, {'encrypted' if encrypted else 'not encrypted'}", flush=True)
    await ended.wait()
    await server.close()
    return 0
