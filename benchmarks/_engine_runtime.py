"""ONNX Runtime's CUDA build without callboard, at its best: bound on the device, and as a CUDA graph."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from _engine_subjects import Array, Call, Subject

from callboard.kernel.engine.files.rewrites import switched_off

__all__ = ["by_binding", "by_fused", "with_cuda"]

CUDA = "CUDAExecutionProvider"
CODES = {"f32": (1, np.float32), "f16": (10, np.float16)}


def with_cuda() -> bool:
    """Whether the installed build has CUDA."""
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    return CUDA in onnxruntime.get_available_providers()


def by_binding(
    data: bytes, call: Call, *, graph: bool = False, tf32: bool = False, weights: Mapping[str, Array] | None = None
) -> Subject:
    """A session whose inputs and outputs stay at their addresses; calls follow each other without waiting.

    Args:
        data: The model.
        call: Its inputs.
        graph: Its own CUDA graph (`enable_cuda_graph`).
        tf32: Products in f32 may round their factors to TF32, as it does by default.
        weights: Those that are not in the file.

    Raises:
        Exception: ONNX Runtime's own, where it cannot make a graph of the model, for one.
    """
    from callboard.backends.cuda.driver import load_driver
    from callboard.backends.cuda.engine.loading import load_runtime

    runtime, driver = load_runtime(), load_driver()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    value = runtime.OrtValue.ortvalue_from_numpy
    given = {name: value(array) for name, array in (weights or {}).items()}
    options.add_external_initializers(list(given), list(given.values()))
    cuda = {"device_id": "0", "enable_cuda_graph": str(int(graph)), "use_tf32": str(int(tf32))}
    opened = runtime.InferenceSession(
        data,
        options,
        providers=[(CUDA, cuda), "CPUExecutionProvider"],
        enable_fallback=0,
        disabled_optimizers=switched_off(data),
    )
    if CUDA not in opened.get_providers():
        raise RuntimeError("the CUDA provider was not loaded")
    settings = []
    for name in ("-1", "1" if graph else "-1"):
        settings.append(runtime.RunOptions())
        settings[-1].add_run_config_entry("disable_synchronize_execution_providers", "1")
        settings[-1].add_run_config_entry("gpu_graph_id", name)
    binding = opened.io_binding()
    for name, array in call.items():
        binding.bind_ortvalue_input(name, value(array, "cuda", 0))
    names = [each.name for each in opened.get_outputs()]
    for name in names:
        binding.bind_output(name, "cuda")
    opened.run_with_iobinding(binding, settings[0])  # not captured: it tells the shapes
    driver.ctx_synchronize()
    outs = binding.get_outputs()
    for name, out in zip(names, outs, strict=True):
        binding.bind_ortvalue_output(name, out)

    def step() -> None:
        opened.run_with_iobinding(binding, settings[1])

    async def result() -> Array:
        code = driver.ctx_synchronize()
        if code:
            raise driver.error(code, "cuCtxSynchronize")
        return np.asarray(outs[0].numpy(), np.float32)

    for _ in range(3):  # it is captured
        step()
    driver.ctx_synchronize()
    return Subject(step, result)


def by_fused(folder: Path, dtype: str, call: Call, *, graph: bool = False, tf32: bool = False) -> Subject:
    """MiniLM in ONNX Runtime's own fused operators, such as `Attention`, which its optimiser would write."""
    from safetensors.numpy import load_file

    from callboard.serve.bundled.minilm_onnx import fused_weights
    from callboard.serve.bundled.minilm_onnx import graph as fused

    code, kind = CODES[dtype]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    arrays = fused_weights(config["num_hidden_layers"], load_file(folder / "model.safetensors"))
    arrays = {name: np.ascontiguousarray(array.astype(kind)) for name, array in arrays.items()}
    within = call["mask"].astype(np.int32)
    share = (within / within.sum(axis=1, keepdims=True))[:, None].astype(kind)
    ids = call["ids"].astype(np.int32)
    given = {"tokens": ids, "kinds": np.zeros_like(ids), "within": within, "share": share}
    subject = by_binding(fused(config, arrays, code), given, graph=graph, tf32=tf32, weights=arrays)

    async def result() -> Array:
        return (await subject.result())[:, 0]

    return Subject(subject.step, result)
