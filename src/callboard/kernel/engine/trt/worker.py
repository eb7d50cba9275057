"""The child process of :class:`~callboard.kernel.engine.trt.TrtRuntime`: one request, one answer.

A request is a line of JSON on the standard input, and then as many bytes as it says; so is the answer, after lines
about progress. What the library prints goes to the standard error.
"""

import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["main"]

Send = Callable[..., None]


def main() -> None:
    """Serve the request; the argument is the module of TensorRT."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.simplefilter("ignore", DeprecationWarning)  # TensorRT-RTX has timing caches that are empty

    def send(answer: dict[str, Any], *parts: bytes) -> None:
        line = json.dumps({**answer, "sizes": [len(each) for each in parts]} if parts else answer)
        out.write(b"".join([line.encode(), b"\n", *parts]))
        out.flush()

    request = json.loads(sys.stdin.buffer.readline())
    parts = [sys.stdin.buffer.read(size) for size in request["sizes"]]
    trt = importlib.import_module(sys.argv[1])
    version = f"{'TensorRT-RTX' if 'rtx' in sys.argv[1] else 'TensorRT'} {trt.__version__}"
    complaints: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                complaints.append(text)

    try:
        if request["action"] == "build":
            built(trt, Logger(), version, complaints, request, parts, send)
        else:
            judged(trt, Logger(), version, complaints, parts[0], send)
    except Exception as e:  # of the library, whose errors have no common base: they are the answer
        send({"error": f"{type(e).__name__}: {e}", "version": version})


def built(
    trt: Any, logger: Any, version: str, complaints: list[str], request: Any, parts: list[bytes], send: Send
) -> None:
    """Build a plan; answers the plan and the timing cache."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.steps[phase_name] = num_steps
            send({"progress": [phase_name, 0, num_steps]})

        def step_complete(self, phase_name: str, step: int) -> bool:
            send({"progress": [phase_name, step + 1, self.steps.get(phase_name, 0)]})
            return True

        def phase_finish(self, phase_name: str) -> None:
            self.steps.pop(phase_name, None)

    def refuse(kind: str, what: str) -> None:
        send({kind: f"{version} {what}: {'; '.join(complaints) or 'it gives no reason'}", "version": version})

    model, cache = parts
    builder = trt.Builder(logger)
    strong = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if strong is None else 1 << int(strong))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        errors = [parser.get_error(at) for at in range(parser.num_errors)]
        complaints[:] = [str(each) for each in errors]
        lacking = {trt.ErrorCode.UNSUPPORTED_NODE, trt.ErrorCode.INVALID_NODE}
        refuse("unsupported" if any(each.code() in lacking for each in errors) else "error", "cannot read the model")
        return
    config = builder.create_builder_config()
    target = getattr(trt.ComputeCapability, request["target"], None)
    if target is None:
        names = [each for each in dir(trt.ComputeCapability) if each.startswith("SM") or each == "CURRENT"]
        send({"error": f"{version} has no target {request['target']!r}; it has {', '.join(names)}", "version": version})
        return
    config.num_compute_capabilities = 1
    config.set_compute_capability(target, 0)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request["workspace"])
    config.progress_monitor = Monitor()
    if request["refit"]:
        config.set_flag(trt.BuilderFlag.REFIT)
    config.set_timing_cache(config.create_timing_cache(cache), False)
    if request["profiles"]:
        profile = builder.create_optimization_profile()
        for name, shapes in request["profiles"].items():
            profile.set_shape(name, *map(tuple, shapes))
        config.add_optimization_profile(profile)
    layers, ports = network.num_layers, described(network)
    complaints.clear()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        refuse("error", f"cannot build the model for {request['target']}")
        return
    kept = config.get_timing_cache()
    answer = {"version": version, "target": request["target"], "layers": layers, "ports": ports}
    send(answer, bytes(plan), bytes(kept.serialize()) if kept is not None else b"")


def described(network: Any) -> list[str]:
    """Inputs and outputs, in lines."""
    inputs = [network.get_input(at) for at in range(network.num_inputs)]
    outputs = [network.get_output(at) for at in range(network.num_outputs)]
    both = [*(("input ", each) for each in inputs), *(("output", each) for each in outputs)]
    return [f"{side} {each.name}: {each.dtype.name}{list(each.shape)}" for side, each in both]


def judged(trt: Any, logger: Any, version: str, complaints: list[str], plan: bytes, send: Send) -> None:
    """Read a plan as if to execute it; answers why that fails."""
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    refusal = None if engine is not None else "; ".join(complaints) or "it gives no reason"
    send({"version": version, "refusal": refusal})


if __name__ == "__main__":
    main()
