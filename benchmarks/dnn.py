"""Cost of convolutions and norms: through callboard, through the library called directly, and in eager torch.

    python benchmarks/dnn.py --json dnn.json
    python benchmarks/dnn.py --quick --device cpu

On CUDA: the 53 convolutions of ResNet-50 at batch 64, bf16, NHWC, one after the other; forward, by the image, by the
filter. ``by heuristics``: both callboard and NVIDIA's frontend take the engine that cuDNN names first. ``timed``:
callboard times engines (``autotune=True``) and torch is in cuDNN's benchmark mode. Norms of 8192 rows of 4096 numbers,
beside torch, and beside a copy of as many bytes. On the CPU, small ones beside torch. ``rnn.py`` has recurrent nets.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

NUMPY: dict[str, Any] = {"bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
EPSILON = 1e-5


class Layer(NamedTuple):
    """A convolution, and how often a network has it.

    Attributes:
        count: How often.
        c, k: Channels.
        n: Extent of the image, which is a square.
        window, stride: Of the filter; the padding is half of it.
    """

    count: int
    c: int
    k: int
    n: int
    window: int = 1
    stride: int = 1

    @property
    def padding(self) -> int:
        return self.window // 2

    def shapes(self, batch: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of the image, the filter and the result, NHWC."""
        m = (self.n + 2 * self.padding - self.window) // self.stride + 1
        return (batch, self.n, self.n, self.c), (self.k, self.window, self.window, self.c), (batch, m, m, self.k)

    def flops(self, batch: int) -> int:
        """Of all of them."""
        (*_, m, _), window = self.shapes(batch)[2], self.window
        return self.count * 2 * batch * m * m * self.k * self.c * window * window


RESNET = (
    Layer(1, 3, 64, 224, 7, 2),
    Layer(1, 64, 64, 56), Layer(3, 64, 64, 56, 3), Layer(4, 64, 256, 56), Layer(2, 256, 64, 56),
    Layer(1, 256, 128, 56), Layer(1, 128, 128, 56, 3, 2), Layer(4, 128, 512, 28), Layer(1, 256, 512, 56, 1, 2),
    Layer(3, 512, 128, 28), Layer(3, 128, 128, 28, 3),
    Layer(1, 512, 256, 28), Layer(1, 256, 256, 28, 3, 2), Layer(6, 256, 1024, 14), Layer(1, 512, 1024, 28, 1, 2),
    Layer(5, 1024, 256, 14), Layer(5, 256, 256, 14, 3),
    Layer(1, 1024, 512, 14), Layer(1, 512, 512, 14, 3, 2), Layer(3, 512, 2048, 7), Layer(1, 1024, 2048, 14, 1, 2),
    Layer(2, 2048, 512, 7), Layer(2, 512, 512, 7, 3),
)  # fmt: skip
"""He, Zhang, Ren, Sun, arXiv:1512.03385, with the stride in the 3x3 convolutions."""
NETS = {
    "ResNet-50": RESNET,
    "ResNet-50, 14x14": RESNET[13:17],
    "a block": (Layer(2, 32, 32, 14, 3), Layer(1, 32, 64, 14)),
}
DIRECTIONS = ("forward", "by image", "by filter")


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        rows = 256 if quick else 2048
        found = [convolutions("a block", 8 if quick else 64, "f32", way, "by heuristics", 5) for way in DIRECTIONS]
        return found + [norms(name, rows, 1024, "f32", "torch", 20) for name in ("layer_norm", "rms_norm")]
    net, found = "ResNet-50, 14x14" if quick else "ResNet-50", []
    for way in DIRECTIONS:
        beside_cudnn = convolutions(net, 64, "bf16", way, "by heuristics", 10)
        found.append(beside_cudnn._replace(bar=0.97, without=("torch",)))
        beside_torch = convolutions(net, 64, "bf16", way, "timed", 10)
        found.append(beside_torch._replace(bar=1.0, base="torch", without=("raw",)))
    for name in ("layer_norm", "rms_norm"):
        for dtype in NUMPY:
            copied = norms(name, 8192, 4096, dtype, "a copy", 200)
            found.append(copied._replace(bar=0.9, without=("torch",)))
            found.append(norms(name, 8192, 4096, dtype, "torch", 200)._replace(bar=1.0, base="torch", without=("raw",)))
    return found


def convolutions(net: str, batch: int, dtype: str, way: str, choice: str, count: int) -> Problem:
    work = 1e-12 * sum(layer.flops(batch) for layer in NETS[net])
    settings = {"net": net, "batch": batch, "dtype": dtype, "way": way, "choice": choice}
    title = f"convolutions of {net}, batch {batch}, {dtype}, {way}, {choice}"
    return Problem(title, settings, count, None, work, "TFLOP/s")


def norms(name: str, rows: int, columns: int, dtype: str, beside: str, count: int) -> Problem:
    settings = {"norm": name, "rows": rows, "columns": columns, "dtype": dtype}
    work = 2e-9 * rows * columns * NUMPY[dtype].itemsize
    return Problem(f"{name} {rows}x{columns} {dtype}, beside {beside}", settings, count, None, work, "GB/s")


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(NUMPY[dtype])


def operands(layer: Layer, batch: int, dtype: str, way: str) -> tuple[Any, Any, tuple[int, ...]]:
    """What is given, and the shape of what is made."""
    x, w, y = layer.shapes(batch)
    one, other, made = {"forward": (x, w, y), "by image": (y, w, x), "by filter": (x, y, w)}[way]
    return drawn(one, dtype, 1), drawn(other, dtype, 2), made


def norm_operands(rows: int, columns: int, dtype: str) -> tuple[Any, Any, Any]:
    return drawn((rows, columns), dtype, 1), drawn((columns,), dtype, 2), drawn((columns,), dtype, 3)


def all_of(steps: list[tuple[int, Callable[[], Any]]], result: Callable[[], Any]) -> Run:
    """Each step as often as it is to be done."""
    order = [step for count, step in steps for _ in range(count)]

    def run() -> Any:
        for step in order[:-1]:
            step()
        return order[-1]()

    return Run(run, result)


async def ours(device: Any, **settings: Any) -> Run:
    if "norm" in settings:
        return await our_norm(device, **settings)
    dnn, steps, out = device.dnn, [], None
    batch, dtype, way = settings["batch"], settings["dtype"], settings["way"]
    for layer in NETS[settings["net"]]:
        one, other, made = operands(layer, batch, dtype, way)
        a, b, out = device.put(one), device.put(other), await device.empty(made, dtype)
        options = {
            "stride": layer.stride, "padding": layer.padding, "layout": "NHWC", "out": out,
            "autotune": settings["choice"] == "timed",
        }  # fmt: skip
        if way == "forward":
            step: Any = lambda a=a, b=b, o=options: dnn.conv(a, b, **o)
        elif way == "by image":
            step = lambda a=a, b=b, s=made, o=options: dnn.conv_backward_data(a, b, s, **o)
        else:
            step = lambda a=a, b=b, s=made, o=options: dnn.conv_backward_filter(a, b, s, **o)
        await step()
        steps.append((layer.count, step))
    assert out is not None
    return all_of(steps, out.get)


async def our_norm(device: Any, norm: str, rows: int, columns: int, dtype: str) -> Run:
    x, scale, bias = map(device.put, norm_operands(rows, columns, dtype))
    out = await device.empty((rows, columns), dtype)
    options = {"out": out, "epsilon": EPSILON, "scale": scale} | ({"bias": bias} if norm == "layer_norm" else {})
    return Run(lambda: getattr(device.dnn, norm)(x, **options), out.get)


def torch_run(torch: Any, where: str, settings: dict[str, Any]) -> Run:
    if "norm" in settings:
        return torch_norm(torch, where, **settings)
    torch.backends.cudnn.benchmark = True
    steps: list[Any] = []
    last: dict[str, Any] = {}
    conv, backward = torch.nn.functional.conv2d, torch.ops.aten.convolution_backward
    for layer in NETS[settings["net"]]:
        one, other, made = operands(layer, settings["batch"], settings["dtype"], settings["way"])
        a, b = (torch_array(torch, where, array).permute(0, 3, 1, 2) for array in (one, other))
        shape = tuple(made[i] for i in (0, 3, 1, 2))
        s, p = layer.stride, layer.padding
        fixed = (None, [s, s], [p, p], [1, 1], False, [0, 0], 1)
        blank = torch.empty(shape, dtype=a.dtype, device=a.device).to(memory_format=torch.channels_last)
        if settings["way"] == "forward":
            step: Any = lambda a=a, b=b, s=s, p=p: conv(a, b, None, s, p)
        elif settings["way"] == "by image":
            step = lambda a=a, b=b, x=blank, f=fixed: backward(a, x, b, *f, [True, False, False])[0]
        else:
            step = lambda a=a, b=b, w=blank, f=fixed: backward(b, a, w, *f, [False, True, False])[1]
        steps.append((layer.count, lambda step=step: last.update(out=step())))
    return all_of(steps, lambda: last["out"].permute(0, 2, 3, 1).float().cpu().numpy())


def torch_norm(torch: Any, where: str, norm: str, rows: int, columns: int, dtype: str) -> Run:
    x, scale, bias = (torch_array(torch, where, array) for array in norm_operands(rows, columns, dtype))
    functional = torch.nn.functional

    def run() -> Any:
        if norm == "layer_norm":
            return functional.layer_norm(x, (columns,), scale, bias, EPSILON)
        return functional.rms_norm(x, (columns,), scale, EPSILON)

    return Run(run, lambda: run().float().cpu().numpy())


def torch_array(torch: Any, where: str, array: Any) -> Any:
    wide = torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(where)
    return wide.to(torch.float32 if array.dtype == np.float32 else torch.bfloat16)


def torch(torch: Any, **settings: Any) -> Run:
    return torch_run(torch, "cuda", settings)


def direct(**settings: Any) -> Run:
    import torch

    return torch_run(torch, "cpu", settings)


def raw(cuda: Any, **settings: Any) -> Run:
    """NVIDIA's frontend of cuDNN as its users call it; of norms a copy."""
    if "norm" in settings:
        return copied(cuda, settings["rows"], settings["columns"], settings["dtype"])
    import cudnn

    handle, steps, way = cudnn.create_handle(), [], settings["way"]
    cudnn.set_stream(handle=handle, stream=cuda.stream)
    types, half = cudnn.data_type, settings["dtype"]
    out, made = 0, ()
    for layer in NETS[settings["net"]]:
        one, other, made = operands(layer, settings["batch"], half, way)
        graph = cudnn.pygraph(
            io_data_type=types.BFLOAT16 if half == "bf16" else types.FLOAT, intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT, handle=handle,
        )  # fmt: skip
        a, b = (graph.tensor(dim=dims(array.shape), stride=strides(array.shape)) for array in (one, other))
        options = {
            "padding": [layer.padding] * 2, "stride": [layer.stride] * 2, "dilation": [1, 1],
        }  # fmt: skip
        node = {"forward": graph.conv_fprop, "by image": graph.conv_dgrad, "by filter": graph.conv_wgrad}[way]
        y = node(a, b, **options)
        y.set_output(True).set_dim(dims(made)).set_stride(strides(made))
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        out = cuda.empty(int(np.prod(made)) * one.itemsize)
        given = {a: cuda.put(one), b: cuda.put(other), y: out}
        room = cuda.empty(max(1, graph.get_workspace_size()))
        steps.append((layer.count, lambda g=graph, given=given, room=room: g.execute(given, room, handle=handle)))
    return all_of(steps, lambda: cuda.get(out, made, NUMPY[half]))


def dims(shape: tuple[int, ...]) -> list[int]:
    """Of an NHWC array, in the order that cuDNN has."""
    n, h, w, c = shape
    return [n, c, h, w]


def strides(shape: tuple[int, ...]) -> list[int]:
    _, h, w, c = shape
    return [h * w * c, 1, w * c, c]


def copied(cuda: Any, rows: int, columns: int, dtype: str) -> Run:
    from cuda.bindings import runtime

    x = cuda.put(norm_operands(rows, columns, dtype)[0])
    nbytes = rows * columns * NUMPY[dtype].itemsize
    out, kind = cuda.empty(nbytes), runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
    return Run(lambda: runtime.cudaMemcpyAsync(out, x, nbytes, kind, cuda.stream))


if __name__ == "__main__":
    compare(__doc__, "dnn", problems, Subjects(ours, direct, raw, None, torch))
