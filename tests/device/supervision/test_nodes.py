"""``cb.Node``: devices of another machine, whose node is a process here; what is refused, cut and encrypted."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.multi_device.waiting import until

import callboard as cb
from callboard.device.protocol.handshake import accept_client
from callboard.device.protocol.messages import Calls, Completions
from callboard.device.protocol.remote import HostEndMessage, Start, Started
from callboard.device.protocol.wire import encode_frame
from callboard.device.supervision.hosts.base import HostEnd
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.remote import host as remote
from callboard.device.supervision.remote import starter
from callboard.device.supervision.remote.host import Address, RemoteHost
from callboard.device.supervision.remote.link import Link
from callboard.device.supervision.remote.node import NodeServer

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(120)]

TOKEN = "a token of 24 characters"
BOUND = 30.0


class Reverser(cb.ResidentActor):
    def turn(self, x: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        return x[::-1].copy()

    def fill(self, x: Any, value: float) -> None:
        x[...] = value


@pytest.fixture
async def server() -> AsyncIterator[tuple[NodeServer, str]]:
    server = NodeServer(TOKEN)
    host, port = await server.start("127.0.0.1")
    yield server, f"{host}:{port}"
    await server.close()


@pytest.mark.slow
async def test_arrays_travel_in_pieces_both_ways(server: tuple[NodeServer, str]) -> None:
    draw = np.random.default_rng(3)
    async with cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as device:
        for shape in ((), (0, 3), (5,), (300, 1000), (3, 2, 100_000)):
            x = draw.standard_normal(shape)
            np.testing.assert_array_equal(await device.put(x).get(), x)
        x = draw.standard_normal((400, 600))
        np.testing.assert_array_equal(await device.put(x.T[::2]).get(), x.T[::2])  # with gaps
        out = np.zeros((600, 800))
        await device.put(x.T).get(out=out[:, ::2])
        np.testing.assert_array_equal(out[:, ::2], x.T)
        assert not out[:, 1::2].any()


@pytest.mark.slow
async def test_a_node_forwards_the_frames_of_ops_and_completions_as_they_are(
    server: tuple[NodeServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, forwarded, completions = bytearray(), bytearray(), bytearray()
    sizes: list[int] = []
    encoded, forward, link_forward = Link._encoded, ProcessHost.forward, Link.forward

    def encode(self: Link[Any], message: Any) -> bytearray:
        frame = encoded(self, message)
        assert not isinstance(message, Completions), "the node has decoded it"
        if isinstance(message, Calls):
            sent.extend(frame)
            sizes.append(len(message.calls))
        return frame

    def to_host(self: ProcessHost, frames: memoryview) -> None:
        forwarded.extend(frames)
        forward(self, frames)

    def to_application(self: Link[Any], frames: memoryview) -> None:
        completions.extend(frames)
        link_forward(self, frames)

    monkeypatch.setattr(Link, "_encoded", encode)
    monkeypatch.setattr(ProcessHost, "forward", to_host)
    monkeypatch.setattr(Link, "forward", to_application)
    async with cb.device("cpu", node=cb.Node(server[1], token=TOKEN), linger=0.0) as device:
        x, y = device.put(np.ones(8)), device.put(np.zeros(8))
        await device.blas.axpy(x, y)
        sent.clear()
        forwarded.clear()
        completions.clear()
        refs = [device.blas.axpy(x, y) for _ in range(1000)]
        await asyncio.gather(*refs)
        assert bytes(forwarded) == bytes(sent)
        assert len(completions) > 1000
        assert max(sizes) == RemoteHost.batch
        assert (await y.get()).tolist() == [1001.0] * 8


@pytest.mark.slow
@pytest.mark.fault
async def test_a_completion_that_cannot_be_read_ends_the_host_and_not_the_node(
    server: tuple[NodeServer, str],
) -> None:
    """The node does not see it, so the application has to: the node still counts as good."""
    cuts: list[str] = []

    class Watched:
        gone: "asyncio.Future[str]" = asyncio.get_running_loop().create_future()
        cut = cuts.append

    node = cb.Node(server[1], token=TOKEN)
    node._address = node._address._replace(lease=Watched)  # type: ignore[arg-type]
    async with cb.device("cpu", node=node) as device:
        ref = device.put(np.ones(4))
        await ref
        (session,) = (one for one in server[0]._sessions if one._host is not None)
        frame = encode_frame(Completions([1 << 60], []))
        frame[-1] = 0xC1  # no MessagePack
        session._said(memoryview(bytes(frame)))
        pending = ref + 1
        with pytest.raises(cb.ContextLost, match="cannot be read"):
            await pending.get()
        async with asyncio.timeout(BOUND):
            await device.ready()
            assert (await device.put(np.ones(4)).get()).sum() == 4
    assert cuts == []


@pytest.mark.slow
async def test_a_host_that_has_greeted_its_node_before_the_application_hears_that_it_has_started(
    server: tuple[NodeServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ProcessHost.start

    async def late(
        loop: Any, env: Any, on_message: Callable[[Any], None], on_end: Callable[[Any], None], **options: Any
    ) -> ProcessHost:
        greeted = asyncio.Event()

        def said(message: Any) -> None:
            on_message(message)
            greeted.set()

        host = await start(loop, env, said, on_end, **options)
        async with asyncio.timeout(BOUND):
            await greeted.wait()
        return host

    monkeypatch.setattr(ProcessHost, "start", late)
    async with cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as device:
        assert (await device.put(np.ones(4)).get()).sum() == 4
        assert device.health().restarts == 0


async def test_a_host_whose_end_comes_with_its_start_has_ended() -> None:
    """Both are read at once, before the caller of ``start`` has the host."""

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept_client(reader, writer, TOKEN)
        writer.write(encode_frame(Started(1, [])) + encode_frame(HostEndMessage("exited", "exit code 1", "")))
        writer.close()

    stub = await asyncio.start_server(node, "127.0.0.1")
    ends: asyncio.Queue[HostEnd] = asyncio.Queue()
    address = Address("127.0.0.1", stub.sockets[0].getsockname()[1], TOKEN)
    start = Start("cpu", "a host", hang_after=9.0, step_timeout=9.0, interval=1.0, lost_after=9.0)
    async with asyncio.timeout(BOUND):
        await RemoteHost.start(address, start, lambda message: None, ends.put_nowait)
        assert (await ends.get()).reason == "exited"
        stub.close()
        await stub.wait_closed()


async def test_resident_actors_and_their_arrays(server: tuple[NodeServer, str]) -> None:
    x = np.arange(300_000.0)
    async with cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as device:
        actor = device.actor_of(cb.Props(Reverser))
        for _ in range(2):  # the second time the room for the result is known before
            np.testing.assert_array_equal(await actor.call(Reverser.turn, x), x[::-1])
        ref = device.zeros((3,), "f4")
        await actor.call(Reverser.fill, ref, 2.0)
        assert (await ref.get()).tolist() == [2.0] * 3
        with pytest.raises(cb.UnsupportedOp, match="another machine"):
            device.actor_of(cb.Props(Reverser), own_process=True)


async def test_a_node_tells_of_its_memory(server: tuple[NodeServer, str]) -> None:
    told: list[cb.MemoryFigures] = []
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as there,
        cb.PlacementActor([there]) as placement,
    ):
        await until(lambda: there._answers.memory)  # the placement's
        remove = await there.watch_memory(told.append, step=1 << 20)
        array = there.empty((4 << 20,), "f4")
        await until(lambda: told and told[-1].used_bytes >= 16 << 20)
        assert placement.candidates()[0].free_bytes == told[-1].free_bytes + told[-1].cached_bytes
        await remove()
        array.free()


async def test_copies_to_a_node_and_back_carry_their_bytes(server: tuple[NodeServer, str]) -> None:
    x = np.arange(250_000.0)
    async with (
        cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as there,
        cb.device("cpu", isolation="process", standby=None) as here,
    ):
        assert there.uuid != here.uuid
        for value in (1.0, 2.0):  # the second copy gets the arena of the first
            there_x = (here.put(x) * value).to(there)
            np.testing.assert_array_equal(await (there_x + 1).get(), x * value + 1)
            np.testing.assert_array_equal(await (there_x * 2).to(here).get(), x * value * 2)


async def test_who_does_not_know_the_token_is_refused(server: tuple[NodeServer, str]) -> None:
    with pytest.raises(cb.BackendUnavailable, match="it refused the token"):
        async with cb.device("cpu", node=cb.Node(server[1], token="another token, as long")):
            pass
    reader, writer = await asyncio.open_connection(*server[1].split(":"))
    writer.write(b"GET / HTTP/1.1\r\n" + bytes(200))
    async with asyncio.timeout(BOUND):
        await reader.read()  # the greeting, then the end
    writer.close()


async def test_what_is_no_node_is_told() -> None:
    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 100)
        writer.close()

    listener = await asyncio.start_server(other, "127.0.0.1")
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(cb.BackendUnavailable, match="not a callboard node"):
        async with cb.device("cpu", node=cb.Node(f"127.0.0.1:{port}", token=TOKEN)):
            pass
    listener.close()
    with pytest.raises(cb.BackendUnavailable, match="node 127"):
        async with cb.device("cpu", node=cb.Node(f"127.0.0.1:{port}", token=TOKEN)):
            pass
    for address, token, lost_after in (("nowhere", TOKEN, 5), ("a:1", "short", 5), ("a:1", TOKEN, 1)):
        with pytest.raises(ValueError, match=r"address|token|lost_after"):
            cb.Node(address, token=token, lost_after=lost_after)


@pytest.mark.fault
async def test_a_connection_that_is_cut_is_a_lost_context(server: tuple[NodeServer, str]) -> None:
    async with cb.device("cpu", node=cb.Node(server[1], token=TOKEN)) as device:
        ref = device.put(np.ones(4))
        await ref
        for session in list(server[0]._sessions):
            session.end("a cable was pulled")
        async with asyncio.timeout(BOUND):
            while device.generation == ref.generation:  # noqa: ASYNC110 - it changes when the loss is noticed
                await asyncio.sleep(0)
        with pytest.raises(cb.GpuRefStale):
            await (ref + 1)
        async with asyncio.timeout(BOUND):
            await device.ready()
            assert (await device.put(np.ones(4)).get()).sum() == 4


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.fault
@pytest.mark.parametrize("returns", [True, False])
async def test_calls_wait_for_a_node_that_is_started_again(returns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = 0
    opened = remote.open_node

    async def counted(address: remote.Address) -> Any:
        nonlocal refused
        try:
            return await opened(address)
        except HostEnd:
            refused += 1
            raise

    monkeypatch.setattr(remote, "open_node", counted)
    monkeypatch.setattr(starter, "AGAIN", (0.001, 0.01))
    first, second = NodeServer(TOKEN), NodeServer(TOKEN)
    host, port = await first.start("127.0.0.1")
    async with asyncio.timeout(BOUND):
        async with cb.device("cpu", node=cb.Node(f"{host}:{port}", token=TOKEN)) as device:
            await device.put(np.ones(4))
            generation = device.generation
            await first.close()
            await until(lambda: device.generation != generation)
            waiting = device.put(np.full(4, 2.0))
            await until(lambda: refused > 20)  # more than the device's budget of losses
            if returns:
                await second.start(host, port)
                assert (await waiting.get()).sum() == 8
                assert (await device.stats()).restarts == 1
        await second.close()  # and without it the device was closed all the same


@pytest.mark.slow
async def test_a_connection_can_be_encrypted(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    server = NodeServer(TOKEN, tls)
    host, port = await server.start("127.0.0.1")
    client = ssl.create_default_context(cafile=certificate)
    async with cb.device("cpu", node=cb.Node(f"{host}:{port}", token=TOKEN, tls=client)) as device:
        assert (await device.put(np.ones(300_000)).get()).sum() == 300_000
    another = cb.Node(f"{host}:{port}", token=TOKEN, tls=ssl.create_default_context())  # other authorities
    with pytest.raises(cb.BackendUnavailable, match="certificate"):
        async with cb.device("cpu", node=another):
            pass
    await server.close()


def certified(folder: Path, name: str = "node.example") -> tuple[str, str]:
    """A certificate for 127.0.0.1 and a name, and its key, made by openssl."""
    certificate, key = str(folder / "node.pem"), str(folder / "node.key")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-keyout", key, "-out", certificate]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=BOUND)
    except FileNotFoundError:
        pytest.skip("openssl is not installed: no certificate for the test")
    return certificate, key
