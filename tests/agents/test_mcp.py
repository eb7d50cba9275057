"""Tools over the Model Context Protocol, by its own client: in this process, over stdin and stdout, and over HTTP."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, TypedDict

import pytest
from tests import lazily

import callboard as cb

mcp: Any = lazily.importorskip("mcp", reason="for the extra mcp")
DOCUMENTS = [
    cb.Document("loss.md", "# Loss\n\nA lost context fails its arrays.\n"),
    cb.Document("queues.md", "# Queues\n\nA full queue refuses requests at once.\n"),
]


class State(TypedDict):
    x: int


async def double(x: int, times: int = 1) -> int:
    """Doubles a number."""
    if times < 0:
        raise ValueError("times is negative")
    return x << times


def count(words: list[str]) -> int:
    return len(words)


def graph() -> cb.NodeGraph:
    return cb.NodeGraph().add_node("words", str.split).add_node("count", count).add_edge("words", "count")


async def test_tools_of_every_kind_are_listed_and_called() -> None:
    async with cb.RagPipeline() as pipeline:
        await pipeline.ingest(DOCUMENTS)
        tools = {"ask": pipeline, "count": graph(), "double": double, "plain": count}
        server = cb.mcp_server(tools, descriptions={"count": "Counts words."}, instructions="Ask first.")
        async with mcp.Client(server) as client:
            listed = {each.name: each for each in (await client.list_tools()).tools}
            assert listed["count"].description == "Counts words."
            assert listed["double"].description == "Doubles a number."
            assert [*listed["ask"].input_schema["properties"]] == ["question", "top_k", "min_score"]
            assert listed["double"].input_schema["required"] == ["x"]
            answer = await client.call_tool("ask", {"question": "What does a full queue refuse?", "top_k": 1})
            found = answer.structured_content
            assert found["text"] == "A full queue refuses requests at once. [1]"
            assert [each["place"] for each in found["citations"]] == ["queues.md:3"]
            assert "A full queue" in answer.content[0].text  # for clients that read no structures
            counted = await client.call_tool("count", {"state": "to be or not to be"})
            assert counted.structured_content == {"result": 6}
            assert (await client.call_tool("double", {"x": 3})).structured_content == {"result": 6}
            assert (await client.call_tool("plain", {"words": ["a", "b"]})).structured_content == {"result": 2}


async def test_errors_are_told_to_the_model() -> None:
    async with mcp.Client(cb.mcp_server({"double": double, "count": graph()})) as client:
        for arguments, says in (({"x": 1, "times": -1}, "ValueError: times is negative"), ({}, "Field required")):
            answer = await client.call_tool("double", arguments)
            assert answer.is_error
            assert says in answer.content[0].text
        failed = await client.call_tool("count", {"state": 3})
        assert failed.is_error
        assert "NodeFailed" in failed.content[0].text
    given: Any = {"x": 3}
    with pytest.raises(TypeError, match=r"tools\['x'\] is 3"):
        cb.mcp_server(given)
    with pytest.raises(ValueError, match="'other', which is no tool"):
        cb.mcp_server({"double": double}, descriptions={"other": ""})


async def test_a_graph_of_langgraph_s_kind_is_a_tool() -> None:
    builder = cb.StateGraph(State)
    builder.add_node("more", lambda state: {"x": state["x"] + 1})
    builder.add_edge(cb.START, "more")
    async with mcp.Client(cb.mcp_server({"more": builder.compile()})) as client:
        assert (await client.call_tool("more", {"state": {"x": 1}})).structured_content == {"result": {"x": 2}}


async def test_over_http() -> None:
    """The application, without a port."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    server = cb.mcp_server({"double": double})
    app = server.streamable_http_app(host="127.0.0.1")
    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8000") as http,
        mcp.Client(streamable_http_client("http://127.0.0.1:8000/mcp", http_client=http)) as client,
    ):
        assert (await client.call_tool("double", {"x": 5})).structured_content == {"result": 10}


@pytest.mark.slow
async def test_callboard_ask_is_a_tool_of_a_program(tmp_path: Path) -> None:
    for each in DOCUMENTS:
        (tmp_path / each.source).write_text(each.text)
    arguments = ["-m", "callboard", "ask", "--mcp", "--retrieval", "text", "--path", str(tmp_path)]
    started = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with asyncio.timeout(120), mcp.Client(started) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["ask"]
        answer = await client.call_tool("ask", {"question": "What does a full queue refuse?"})
        assert "refuses requests at once" in answer.structured_content["text"]
