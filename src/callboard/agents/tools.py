"""``mcp_server``: pipelines, graphs and functions as tools of the Model Context Protocol."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from callboard.agents.rag.answer import RagAnswer
from callboard.agents.rag.pipeline import RagPipeline
from callboard.core.errors import BackendUnavailable

__all__ = ["mcp_server"]

Tool = Callable[..., Awaitable[Any]]
ASKED = "Answers a question from the documents of this server, with the passages that the answer is from."


def mcp_server(
    tools: Mapping[str, Any],
    *,
    name: str = "callboard",
    descriptions: Mapping[str, str] = {},
    instructions: str | None = None,
) -> Any:
    """A server of the Model Context Protocol, with which assistants call these tools.

    The result is an ``MCPServer`` of the package mcp: ``await server.run_stdio_async()`` serves a program that has
    started this one, ``await server.run_streamable_http_async(port=8000)`` serves ``http://127.0.0.1:8000/mcp``, and
    ``server.streamable_http_app()`` is an application for a server of ASGI.

    ::

        server = cb.mcp_server({"ask_docs": pipeline, "count": graph}, descriptions={"count": "Counts words."})
        await server.run_stdio_async()

    Args:
        tools: By name. An open :class:`RagPipeline`, which takes ``question``, ``top_k`` and ``min_score``, and
            returns ``text`` and ``citations``; a :class:`NodeGraph`, a compiled :class:`StateGraph`, or another
            object with ``ainvoke``, which takes ``state`` and returns its result; or a function, whose signature and
            docstring say what it takes; it is called on a thread unless it is a coroutine function. Results are sent
            as JSON.
        name: Of the server.
        descriptions: What tools do, for the model that chooses among them; by default a function's docstring.
        instructions: How the tools are to be used.

    An error of a tool is its result, for the model: the name of its class and its text.

    Raises:
        BackendUnavailable: The package mcp is not installed.
        TypeError: A tool is none of these.
        ValueError: There is a description of no tool.
    """
    try:
        from mcp.server import MCPServer
    except ImportError as e:
        raise BackendUnavailable("mcp_server needs mcp 2: pip install 'callboard[mcp]'") from e
    if unknown := set(descriptions) - set(tools):
        raise ValueError(f"descriptions has {min(unknown)!r}, which is no tool; the tools are: {', '.join(tools)}")
    server: Any = MCPServer(name, instructions=instructions)
    for each, tool in tools.items():
        function, said = _function(each, tool)
        server.add_tool(function, name=each, description=descriptions.get(each, said))
    return server


def _function(name: str, tool: Any) -> tuple[Tool, str]:
    """A function with the signature of a tool, and its description."""
    if isinstance(tool, RagPipeline):
        return _told(_asking(tool)), ASKED
    if callable(getattr(tool, "ainvoke", None)):
        return _told(_running(tool)), f"Runs the graph {name!r} with a state, and returns its result."
    if inspect.isroutine(tool):
        return _told(tool), inspect.getdoc(tool) or name
    raise TypeError(f"tools[{name!r}] is {tool!r:.200}; give a RagPipeline, a graph with ainvoke, or a function")


def _asking(pipeline: RagPipeline) -> Tool:
    async def ask(question: str, top_k: int = 5, min_score: float | None = None) -> dict[str, Any]:
        return _shown(await pipeline.query(question, top_k=top_k, min_score=min_score))

    return ask


def _running(graph: Any) -> Tool:
    async def run(state: Any) -> dict[str, Any]:
        return {"result": await graph.ainvoke(state)}

    return run


def _told(function: Callable[..., Any]) -> Tool:
    """The function, whose errors the model is told."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args, **kwargs)
            return await asyncio.to_thread(function, *args, **kwargs)
        except Exception as e:  # of a tool
            raise ToolError(f"{type(e).__name__}: {e}") from e

    return called


def _shown(answer: RagAnswer) -> dict[str, Any]:
    """An answer as JSON has it."""
    citations = [
        {
            "number": each.number,
            "place": each.place,
            "heading": each.passage.heading,
            "text": each.passage.text,
            "cited": each.cited,
        }
        for each in answer.citations
    ]
    return {"text": answer.text, "citations": citations, "skipped": dict(answer.skipped)}
