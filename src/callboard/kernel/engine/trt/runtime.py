"""``TrtRuntime``: TensorRT's builder and its judgement of plans, in a child process."""

import asyncio
import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.core.errors import BackendUnavailable, LibraryError, ShapeError
from callboard.kernel.engine.inputs.profiles import Port, profiles_of
from callboard.kernel.engine.plan import EngineRefused, container, header_of, read_model

__all__ = ["MODULES", "TrtBuild", "TrtRuntime"]

MODULES = ("tensorrt_rtx_bindings", "tensorrt")
"""Python modules of TensorRT-RTX and TensorRT, which have one interface."""
LONGEST_LINE = 1 << 20
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TrtBuild:
    """What :meth:`TrtRuntime.build` has made.

    Attributes:
        engine: Name and version of the library.
        target: The compute capability that the plan is for.
        plan: The library's own bytes.
        timing_cache: For the next build, which then measures less; empty if the library keeps none.
        ports: Inputs and outputs of the plan, in words.
        layers: The number of layers of the network before it was optimised.
        serialized: The plan with its model and profiles, for ``dev.engine.load`` and for :meth:`TrtRuntime.refusal`.
    """

    engine: str
    target: str
    plan: bytes = field(repr=False)
    timing_cache: bytes = field(repr=False)
    ports: list[str]
    layers: int
    serialized: bytes = field(repr=False)

    def explain(self) -> str:
        """Library, target, inputs and outputs, in lines."""
        head = f"{self.engine} for {self.target}: {self.layers} layers, {len(self.plan)} bytes"
        return "\n".join([head, *self.ports])


class TrtRuntime:
    """TensorRT-RTX or TensorRT. It needs no GPU to build; its code runs in a child process, which ends with the call.

    Args:
        module: One of :data:`MODULES`; None: the first that is installed.
        limit_s: Seconds that a call may take; its process is killed then.

    Raises:
        BackendUnavailable: It is not installed.
    """

    def __init__(self, module: str | None = None, *, limit_s: float = 1800.0) -> None:
        if module is not None and module not in MODULES:
            raise ShapeError(f"TrtRuntime: module is {module!r}; use one of {', '.join(MODULES)}")
        found = [each for each in (MODULES if module is None else (module,)) if importlib.util.find_spec(each)]
        if not found:
            raise BackendUnavailable(
                "TensorRT is not installed; install it with: pip install 'callboard[tensorrt]', or use another engine"
            )
        if not limit_s > 0:
            raise ShapeError(f"TrtRuntime: limit_s is {limit_s}; it must be positive")
        self.module = found[0]
        self._limit = limit_s

    async def build(
        self,
        model: bytes,
        *,
        target: str,
        profiles: Mapping[str, Any] | None = None,
        workspace: int = 1 << 30,
        timing_cache: bytes = b"",
        refit: bool = False,
        progress: Progress | None = None,
        title: str = "model",
    ) -> TrtBuild:
        """Build a plan.

        Args:
            model: An ONNX file in the precision that it is to have; see :func:`~callboard.kernel.engine.lower`, with
                ``symmetric=True`` for int8.
            target: Compute capability of the GPU, such as ``"SM89"``; ``"CURRENT"``: the one in this machine.
            profiles: (smallest, usual, largest shape) of each input with dynamic extents, by name.
            workspace: Bytes of device memory that a layer may use at most.
            timing_cache: The cache of an earlier build.
            refit: The weights can be replaced. Most models then need a driver to be built.
            progress: Called with the phase, its step and its number of steps.
            title: Name of the model in errors.

        Raises:
            OnnxError, ShapeError: No model, or a profile is missing or does not fit.
            UnsupportedOp: The library has operators not; names the first that it refuses.
            LibraryError: The library refuses the model or the target, or its process crashed or took too long.
        """
        found = await asyncio.to_thread(read_model, model, title)
        ports = [Port(each.name, each.dtype or "", each.shape) for each in found.graph.inputs]
        checked = profiles_of(title, ports, profiles)
        for port in ports:
            if port.name not in checked and (port.shape is None or not all(isinstance(n, int) for n in port.shape)):
                raise ShapeError(f"{title}: input {port} has dynamic extents; TensorRT needs a profile of it")
        request = {
            "action": "build",
            "title": title,
            "target": target,
            "profiles": {name: each.shapes for name, each in checked.items()},
            "workspace": workspace,
            "refit": refit,
            "sizes": [len(model), len(timing_cache)],
        }
        answer, (plan, cache) = await self._call(request, model + timing_cache, progress)
        header = {
            "engine": "tensorrt",
            "version": answer["version"],
            "device": answer["target"],
            "title": title,
            "opset": found.opset,
            "threads": 0,
            "refit": refit,
            "profiles": request["profiles"],
            "bytes": len(model),
            "compiled": len(plan),
        }
        whole = await asyncio.to_thread(lambda: container(header, model + plan))
        return TrtBuild(answer["version"], answer["target"], plan, cache, answer["ports"], answer["layers"], whole)

    async def refusal(self, plan: bytes) -> str | None:
        """Why the library would not execute a plan on this machine, in its own words; None if it would.

        Args:
            plan: :attr:`TrtBuild.serialized`.

        Raises:
            EngineRefused: The bytes are damaged, or a plan of another engine.
            LibraryError: As for :meth:`build`.
        """
        header, data = await asyncio.to_thread(header_of, plan)
        if header["engine"] != "tensorrt":
            raise EngineRefused(f"{header['title']} is a plan of {header['engine']}, not of TensorRT")
        compiled = data[header["bytes"] :]
        request = {"action": "check", "title": header["title"], "sizes": [len(compiled)]}
        answer, _ = await self._call(request, compiled, None)
        if answer["version"] != header["version"]:
            return f"it is a plan of {header['version']}, and {answer['version']} is installed"
        found: str | None = answer["refusal"]
        return found

    async def _call(
        self, request: dict[str, Any], payload: bytes, progress: Progress | None
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Ask a child process."""
        title = request["title"]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "callboard.kernel.engine.trt.worker", self.module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LONGEST_LINE,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            async with asyncio.timeout(self._limit):
                with contextlib.suppress(ConnectionError):  # it has ended: the next read says so
                    child.stdin.write(json.dumps(request).encode() + b"\n" + payload)
                    await child.stdin.drain()
                    child.stdin.close()
                while line := await child.stdout.readline():
                    answer = json.loads(line)
                    if "progress" not in answer:
                        parts = [await child.stdout.readexactly(size) for size in answer.get("sizes", ())]
                        return _checked(answer, title), parts
                    if progress is not None:
                        progress(*answer["progress"])
                code = await child.wait()
        except TimeoutError:
            raise LibraryError(f"{title}: TensorRT took more than {self._limit} s", self.module) from None
        except asyncio.IncompleteReadError:
            code = await child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        raise LibraryError(f"{title}: the process of {self.module} ended with {code}", self.module)


def _checked(answer: dict[str, Any], title: str) -> dict[str, Any]:
    if "unsupported" in answer:
        from callboard.core.errors import UnsupportedOp

        raise UnsupportedOp(f"{title}: {answer['unsupported']}")
    if "error" in answer:
        raise LibraryError(f"{title}: {answer['error']}", answer["version"])
    return answer
