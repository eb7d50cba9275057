"""``callboard load``."""

import argparse
import asyncio
import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from callboard.actors.clock import Clock, LoopClock
from callboard.cli.load.bodies import Post, embedding_posts, generation_posts, infer_posts, some_texts
from callboard.cli.load.connections import Connections
from callboard.cli.load.driver import Samples, drive_closed, drive_open
from callboard.cli.load.figures import drawing, figures_of
from callboard.cli.load.streams import Stream
from callboard.cli.parts.progress import Progress
from callboard.cli.parts.tokens import read_token
from callboard.core.errors import BackendUnavailable

__all__ = ["add_load"]

SHOWN_EVERY = 0.2
"""Seconds between changes of the count on a terminal."""
MAX_CONNECTIONS = 4096
LONGEST = 300
"""Characters of a server's error that are shown."""
OURS = frozenset(("connection", "content-length", "content-type", "host", "transfer-encoding"))
"""Headers that belong to the requests."""


def add_load(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "load",
        help="send requests to a server of models and measure it",
        description="Sends requests to a server that speaks the Open Inference Protocol v2 or OpenAI's API, and tells "
        "how they ended and how long they took. With --rate, latencies count from when a request was due, so that a "
        "server that stalls cannot slow down its own measurement. "
        "It needs the extra: pip install 'callboard[serve]'.",
    )
    parser.add_argument("url", metavar="URL", help="of the server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", help="its name; default: the only one that the server has")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--embeddings", action="store_true", help="send /v1/embeddings, not the Open Inference Protocol")
    what.add_argument("--chat", action="store_true", help="stream texts of /v1/chat/completions")
    what.add_argument("--completions", action="store_true", help="stream texts of /v1/completions")
    parser.add_argument("--max-tokens", type=_count, default=64, help="of a streamed text; default: %(default)s")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--clients", type=_count, default=8, help="closed loop: so many clients, one request each; default: %(default)s"
    )
    how.add_argument("--rate", type=_positive, help="open loop: requests per second at random times (Poisson)")
    parser.add_argument("--seconds", type=_positive, default=10.0, help="that count; default: %(default)s")
    parser.add_argument("--warmup", type=_seconds, default=1.0, help="seconds before; default: %(default)s")
    parser.add_argument("--timeout", type=_positive, default=30.0, help="seconds of a request; default: %(default)s")
    parser.add_argument("--deadline", type=_positive, help="seconds that the server has for a request of the protocol")
    parser.add_argument("--shape", action="append", default=[], type=_shape, metavar="INPUT=N,…", help="of an input")
    parser.add_argument("--binary", action="store_true", help="send tensors as raw bytes")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="texts to send, one per line; default: made up")
    parser.add_argument("--each", type=_count, default=1, help="texts of a request of --embeddings; default: 1")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token to send")
    parser.add_argument(
        "--header", action="append", default=[], type=_header, metavar="NAME:VALUE", help="to send; may be repeated"
    )
    parser.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    parser.add_argument("--seed", type=int, default=0, help="of times, numbers and texts; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    try:
        samples = asyncio.run(_load(given, LoopClock()))
    except (BackendUnavailable, OSError, ValueError) as e:
        print(f"callboard load: {str(e) or type(e).__name__}", file=sys.stderr)
        return 2
    figures = figures_of(samples)
    if given.json:
        load = {"clients": given.clients} if given.rate is None else {"rate": given.rate}
        print(json.dumps({"url": given.url, **load, **dataclasses.asdict(figures)}, indent=2))
    else:
        for line in figures.lines():
            print(line)
        for line in drawing(figures.histogram, blocks=sys.stdout.isatty()):
            print(line)
    return 0 if figures.latency and 2 * figures.goodput >= figures.throughput else 1


async def _load(given: argparse.Namespace, clock: Clock) -> Samples:
    headers = dict(given.header)
    if len(headers) < len(given.header):
        raise ValueError("two --header have one name: join their values with commas")
    if given.token_file is not None and "authorization" in headers:
        raise ValueError("--token-file and --header authorization: give one of them")
    if given.token_file is not None:
        headers["authorization"] = f"Bearer {read_token(given.token_file)}"
    most = MAX_CONNECTIONS if given.rate is not None else given.clients
    connections = Connections(given.url, headers, timeout=given.timeout, most=most, verify=not given.insecure)
    try:
        posts = itertools.cycle(await _posts(given, connections))
        start = clock.time()
        samples = Samples(since=start + given.warmup, until=start + given.warmup)

        async def send() -> tuple[str, Stream | None] | str:
            post = next(posts)
            if not post.streamed:
                return await _sent(connections, post, errors=samples.errors)
            stream = Stream(clock.time)
            return await _sent(connections, post, stream, samples.errors), stream

        end = samples.since + given.seconds
        if given.rate is None:
            work = drive_closed(send, samples, clock, clients=given.clients, end=end)
        else:
            work = drive_open(send, samples, clock, rate=given.rate, end=end, seed=given.seed)
        await _shown(asyncio.ensure_future(work), samples)
        return samples
    finally:
        await connections.close()


async def _shown(work: "asyncio.Future[None]", samples: Samples) -> None:
    """Wait for the work, or until Ctrl-C; on a terminal, count the requests meanwhile."""
    with Progress("requests") as progress:
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=SHOWN_EVERY)
                progress.show(len(samples.kept) + samples.warm)
        except asyncio.CancelledError:  # Ctrl-C: report the requests that have ended
            work.cancel()
            await asyncio.wait({work})
            return
    work.result()


async def _sent(
    connections: Connections, post: Post, stream: Stream | None = None, errors: dict[str, str] | None = None
) -> str:
    """Send a request; how it ended. ``errors`` gets what it was told, if it is the first that failed so."""
    came = None if stream is None else stream.feed
    errors = {} if errors is None else errors
    try:
        found = await connections.request("POST", post.path, post.body, came, **post.headers)
        end = str(found.status) if stream is None else stream.end(found.status)
        if found.status >= 300:
            errors.setdefault(end, _line(found.body))
        elif stream is not None and stream.error is not None:
            errors.setdefault(end, _line(stream.error))
        return end
    except TimeoutError:
        return "timeout"
    except (OSError, ValueError) as e:
        end = type(e).__name__
        errors.setdefault(end, _line(str(e).encode()))
        return end


def _line(text: bytes) -> str:
    """The beginning of a server's text, as a line that a terminal only shows."""
    shown = " ".join(text[: 4 * LONGEST].decode(errors="replace").split())
    return "".join(each if each.isprintable() else "\ufffd" for each in shown)[:LONGEST] or "no text"


async def _posts(given: argparse.Namespace, connections: Connections) -> list[Post]:
    """Return the requests to send.

    Raises:
        ValueError: The server does not have such a model.
    """
    texts = some_texts(given.seed)
    if given.texts is not None:
        texts = [line for line in given.texts.read_text("utf-8").splitlines() if line.strip()]
        if not texts:
            raise ValueError(f"{given.texts} has no texts")
    model = given.model or await _only_model(connections)
    if given.embeddings:
        return embedding_posts(model, texts, given.each)
    if given.chat or given.completions:
        return generation_posts(model, texts, chat=given.chat, max_tokens=given.max_tokens)
    metadata = await _asked(connections, f"/v2/models/{quote(model)}")
    return infer_posts(
        metadata, dict(given.shape), texts, binary=given.binary, seed=given.seed, deadline=given.deadline
    )


async def _only_model(connections: Connections) -> str:
    found = await _asked(connections, "/v1/models")
    names = [str(each["id"]) for each in found.get("data", [])]
    if len(names) != 1:
        raise ValueError(f"the server has {len(names)} models: name one with --model: {', '.join(names)}")
    return names[0]


async def _asked(connections: Connections, path: str) -> Any:
    try:
        response = await connections.request("GET", path)
    except TimeoutError as e:
        raise ValueError(f"{path} was not answered in time") from e
    except OSError as e:
        raise ValueError(f"the server at {connections.address} cannot be reached: {e.strerror or e}") from e
    if response.status != 200:
        raise ValueError(f"{path}: status {response.status}: {response.body[:200].decode(errors='replace')}")
    return json.loads(response.body)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return found


def _positive(text: str) -> float:
    if not (found := _seconds(text)):
        raise argparse.ArgumentTypeError("it must be above 0")
    return found


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip().lower(), value.strip()
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9a-z-]+", name) or not re.fullmatch(r"[ -~]+", value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a header; give NAME:VALUE, such as x-tenant:acme")
    if name in OURS:
        raise argparse.ArgumentTypeError(f"{name} is set by the requests themselves")
    return name, value


def _shape(text: str) -> tuple[str, Sequence[int]]:
    name, _, extents = text.partition("=")
    try:
        return name, [int(extent) for extent in extents.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; give one such as x=1,4") from None
