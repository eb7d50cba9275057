"""``ImageFilterPipeline``: against SciPy and OpenCV, and what the original did wrong."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.core.dtype import as_dtype
from callboard.core.layout import layout_of
from callboard.realtime.images import plain
from callboard.realtime.images.cuda import HIGH, TEXT, THREADS, blocks_of
from callboard.realtime.images.kernels import OPS, SHAPES
from callboard.realtime.images.messages import Process, ProcessGpu, UpdateKernel
from callboard.realtime.images.separation import stage_of

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

RNG = np.random.default_rng(5)
SCIPY = {"constant": "constant", "replicate": "nearest", "reflect": "reflect", "wrap": "grid-wrap", "mirror": "mirror"}
SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])


@pytest_asyncio.fixture
async def gpu() -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=None) as device:
        yield device


def image_of(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    if dtype == "float32":
        return RNG.uniform(0, 255, shape).astype(dtype)
    return RNG.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def wanted_of(image: Any, weights: Any, border: str, fill: float = 0.0) -> Any:
    """One image ``[h, w, c]``, by SciPy in f64, rounded as stated."""
    planes = [
        ndimage.correlate(image[..., n].astype("f8"), np.asarray(weights, "f8"), mode=SCIPY[border], cval=fill)
        for n in range(image.shape[-1])
    ]
    found = np.stack(planes, -1)
    return found if image.dtype == np.float32 else np.clip(np.rint(found), 0, np.iinfo(image.dtype).max)


def near(found: Any, wanted: Any, dtype: str) -> None:
    """Equal; within a last digit where the sum is close to a half."""
    assert found.dtype == dtype
    off = np.abs(found.astype("f8") - wanted)
    assert off.max() <= (1e-2 if dtype == "float32" else 1), off.max()
    close = {"uint8": 0.01, "uint16": 0.05}.get(dtype, 1.0)  # sums in f32 of 16 bits are off by up to a fiftieth
    assert (off > 0).sum() <= max(3, close * off.size)


@pytest.mark.parametrize("border", list(SCIPY))
@pytest.mark.parametrize("dtype, channels, size", [("uint8", 3, 3), ("uint16", 1, 5), ("float32", 4, 9)])
@pytest.mark.few(15)
async def test_every_border_dtype_and_size(
    gpu: cb.Device, border: cb.Border, dtype: str, channels: int, size: int
) -> None:
    image = image_of(dtype, 11, 13, channels)
    weights = RNG.uniform(-0.2, 0.6, (size, size)) / size
    fill = 7.0 if border == "constant" else 0.0
    found = await cb.ImageFilterPipeline(gpu, weights, border=border, fill=fill).process(image)
    near(found, wanted_of(image, weights, border, fill), dtype)


@pytest.mark.parametrize("border", ["constant", "wrap"])
async def test_an_outer_product_runs_in_two_passes(gpu: cb.Device, border: cb.Border) -> None:
    line = np.exp(-(np.arange(-4, 5) ** 2) / 8)
    weights = np.outer(line, line) / line.sum() ** 2
    assert stage_of("k", weights).row.size == 9
    assert not stage_of("k", weights + np.eye(9)).row.size
    image = image_of("uint8", 12, 10, 1)
    found = await cb.ImageFilterPipeline(gpu, weights, border=border, fill=9.0).process(image[..., 0])
    near(found[..., None], wanted_of(image, weights, border, 9.0), "uint8")


async def test_a_chain_a_batch_a_part_and_a_strided_view(gpu: cb.Device) -> None:
    blur = np.full((3, 3), 1 / 9)
    images = image_of("uint8", 2, 24, 40, 3)[:, ::2, ::2]
    chain = cb.ImageFilterPipeline(gpu, [blur, SHARPEN], border="reflect")
    whole = await chain.process(images)
    for image, found in zip(images, whole, strict=True):
        near(found, wanted_of(wanted_of(image, blur, "reflect").astype("u1"), SHARPEN, "reflect"), "uint8")
    for border in ("reflect", "wrap"):
        chain = cb.ImageFilterPipeline(gpu, [blur, SHARPEN], border=border)  # type: ignore[arg-type]
        whole = await chain.process(images[0])
        for top, bottom, left, right in ((0, 5, 0, 20), (4, 9, 6, 7), (0, 12, 17, 20)):
            part = await chain.process(images[0], roi=(top, bottom, left, right))
            np.testing.assert_array_equal(part, whole[top:bottom, left:right])


async def test_sums_are_rounded_and_not_truncated_and_edges_are_chosen(gpu: cb.Device) -> None:
    image = np.array([[0, 1, 2, 3]], "u1")
    pipe = cb.ImageFilterPipeline(gpu, [[0.0, 0.75, 0.0]])  # the original truncates: 0, 0, 1, 2
    assert (await pipe.process(image)).tolist() == [[0, 1, 2, 2]]  # 1.5 goes to 2, 2.25 to 2
    half = cb.ImageFilterPipeline(gpu, [[0.5]])
    assert (await half.process(image)).tolist() == [[0, 0, 1, 2]]  # to even
    edge = cb.ImageFilterPipeline(gpu, [[1.0, 0.0, 0.0]], border="replicate")  # the original always takes 0
    assert (await edge.process(image)).tolist() == [[0, 0, 1, 2]]


async def test_on_the_device_with_the_configured_kernel(gpu: cb.Device) -> None:
    image = image_of("uint8", 9, 9, 3)
    pipe = cb.ImageFilterPipeline(gpu, SHARPEN, border="mirror")
    ref = await pipe.ask(ProcessGpu(image=gpu.put(image)))  # the original ignores the configured kernel there
    near(await ref.get(), wanted_of(image, SHARPEN, "mirror"), "uint8")
    await pipe.ask(UpdateKernel(kernel=np.eye(3) / 3))
    near(await pipe.ask(Process(image=image)), wanted_of(image, np.eye(3) / 3, "mirror"), "uint8")


async def test_filters_are_recorded_once_one_has_run(gpu: cb.Device) -> None:
    images = image_of("uint8", 2, 9, 9, 3)
    pipe = cb.ImageFilterPipeline(gpu, [SHARPEN, np.full((3, 3), 1 / 9)], border="mirror")
    first = gpu.put(images[0])
    wanted = [await pipe.process_gpu(first).get(), await pipe.process(images[1])]
    with gpu.record(image=first) as made:
        made.returns(pipe.process_gpu(first))
    found = [await (await made.replay(image=image)).get() for image in images]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda gpu: cb.ImageFilterPipeline(gpu, np.ones((2, 3))), r"kernels\[0\] has shape \[2, 3\]; pass \[k, k\]"),
        (lambda gpu: cb.ImageFilterPipeline(gpu, [[np.inf]]), r"kernels\[0\] has numbers that are not finite"),
        (lambda gpu: cb.ImageFilterPipeline(gpu, SHARPEN, border="zero"), r"border is 'zero'; use one of 'constant'"),
        (lambda gpu: cb.ImageFilterPipeline(gpu, SHARPEN).process(np.zeros((4, 4))), r"image has dtype float64; pass"),
        (lambda gpu: cb.ImageFilterPipeline(gpu, SHARPEN).process(np.zeros((4, 4, 5), "u1")), r"\[4, 4, 5\]; pass"),
        (
            lambda gpu: cb.ImageFilterPipeline(gpu, SHARPEN).process(np.zeros((4, 4), "u1"), roi=(0, 5, 0, 4)),
            r"roi is \(0, 5, 0, 4\).*inside the image of 4 by 4",
        ),
        (lambda gpu: cb.ImageFilterPipeline(gpu, SHARPEN).update_kernel(SHARPEN, 1), r"stage is 1; it must be"),
    ],
)
@pytest.mark.few(7)
async def test_what_is_refused_is_named(gpu: cb.Device, call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        await call(gpu)


@pytest.mark.parametrize("border", list(SCIPY))
@pytest.mark.few(5)
def test_numba_gives_what_numpy_gives(border: str) -> None:
    pytest.importorskip("numba", reason="the extra realtime")
    from callboard.realtime.images import compiled

    for dtype, size in (("uint8", 3), ("uint16", 5), ("float32", 7)):
        image = image_of(dtype, 2, 9, 10, 3)
        weights = RNG.uniform(-0.1, 0.3, (size, size)).astype("f4")
        found = np.empty((2, *image.shape), image.dtype)
        for engine, out in zip((plain, compiled), found, strict=True):
            engine.correlate(image, weights, out, plain.BORDERS[border], 5.0)
        near(found[1], found[0].astype("f8"), dtype)


TYPES = {"uint8": "unsigned char", "uint16": "unsigned short", "float32": "float"}


def by_text(image: Any, weights: Any, border: int, result: str = "", split: bool = False) -> Any:
    """The CUDA text on the host; the output is of rubbish before. ``split``: the weights are a column and a row."""
    dtype = result or image.dtype.name
    found = np.full(image.shape, 77, dtype)
    k, c = (len(weights), image.shape[-1]) if weights.shape[0] == weights.shape[1] and not result else (0, 0)
    k, c = (weights.shape[1], image.shape[-1]) if split else (k, c) if (k, c) in OPS else (0, 0)
    name = f"filter<{TYPES[image.dtype.name]}, {TYPES[dtype]}, {k}, {c}, {str(split).lower()}>"
    blocks = blocks_of(layout_of(as_dtype(image.dtype), image.shape), *((k, k) if split else weights.shape))
    numbers = (*image.shape, *weights.shape, border, 5.0)
    run_text(TEXT, name, image, weights, found, *numbers, blocks=blocks, threads=THREADS)
    return found


@pytest.mark.parametrize("border", list(SCIPY))
@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.few(15)
def test_the_cuda_text_gives_what_numpy_gives(border: str, dtype: str) -> None:
    """At edges and inside, where a thread goes down several rows; rows that are whole vectors, and others."""
    for k, w, c in itertools.product(((3, 3), (5, 5), (5, 7)), (23, 32), (1, 2, 3, 4)):
        image = image_of(dtype, 2, 2 * HIGH + 5, w, c)
        weights = RNG.uniform(-0.1, 0.3, k).astype("f4")
        weights[1, 1] = 0
        wanted = np.zeros_like(image)
        plain.correlate(image, weights, wanted, plain.BORDERS[border], 5.0)
        near(by_text(image, weights, plain.BORDERS[border]), wanted.astype("f8"), dtype)
        if (k[0], c) in SHAPES and k[0] == k[1]:
            pair = RNG.uniform(-0.1, 0.9, (2, k[0])).astype("f4")
            plain.correlate(image, np.outer(*pair), wanted, plain.BORDERS[border], 5.0)
            near(by_text(image, pair, plain.BORDERS[border], split=True), wanted.astype("f8"), dtype)


@given(
    dtype=st.sampled_from(list(TYPES)), h=st.integers(1, 40), w=st.integers(1, 70), c=st.integers(1, 4),
    k=st.sampled_from([(3, 3), (5, 5), (1, 1), (1, 9), (9, 1), (3, 7)]), border=st.sampled_from(list(SCIPY)),
    seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_cuda_text_takes_any_size(
    dtype: str, h: int, w: int, c: int, k: tuple[int, int], border: str, seed: int
) -> None:
    """To the last bit where all sums are small integers."""
    draw = np.random.default_rng(seed)
    image = draw.integers(0, 256, (1, h, w, c)).astype(dtype)
    weights = draw.integers(-2, 4, k).astype("f4")
    if dtype != "float32":
        weights /= 4  # halves, which are rounded to even
    if seed % 5 == 0:
        weights *= 2.0**28  # beyond what integers without conversion take
    wanted = np.zeros_like(image)
    plain.correlate(image, weights, wanted, plain.BORDERS[border], 5.0)
    np.testing.assert_array_equal(by_text(image, weights, plain.BORDERS[border]), wanted)
    if (k[0], c) in SHAPES and k[0] == k[1]:
        pair = draw.integers(-2, 4, (2, k[0])).astype("f4")
        pair[0] /= 1 if dtype == "float32" else 4
        plain.correlate(image, np.outer(*pair), wanted, plain.BORDERS[border], 5.0)
        np.testing.assert_array_equal(by_text(image, pair, plain.BORDERS[border], split=True), wanted)
    floats = np.zeros(image.shape, "f4")
    plain.correlate(image, weights, floats, plain.BORDERS[border], 5.0)
    np.testing.assert_array_equal(by_text(image, weights, plain.BORDERS[border], "float32"), floats)


async def test_channels_may_be_first() -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 9, 12), dtype=np.uint8)
    kernel = np.full((3, 5), 1 / 15)
    async with cb.device("cpu", isolation=None) as gpu:
        last, first = cb.ImageFilterPipeline(gpu, kernel), cb.ImageFilterPipeline(gpu, kernel, layout="NCHW")
        wanted = np.moveaxis(await last.process(np.moveaxis(image, 1, -1)), -1, 1)
        for one, right in ((image, wanted), (image[0], wanted[0]), (image[0, 0], wanted[0, 0])):
            np.testing.assert_array_equal(await first.process(one), right)
            np.testing.assert_array_equal(await first.process_gpu(gpu.put(one)).get(), right)
        part = await first.process(image, roi=(3, 7, 2, 9))
        np.testing.assert_array_equal(part, wanted[:, :, 3:7, 2:9])
        with pytest.raises(cb.ShapeError, match=r"\[2, 3, 9, 12\].*layout='NCHW'"):
            await last.process(image)
        with pytest.raises(cb.ShapeError, match=r"\[2, 9, 12, 3\].*leave out"):
            first.process_gpu(gpu.put(np.moveaxis(image, 1, -1)))
        with pytest.raises(ValueError, match="'NCHW'"):
            cb.ImageFilterPipeline(gpu, kernel, layout="CHW")  # type: ignore[arg-type]
