"""A photograph through low and high pass: to its spectrum and back by messages, the filters made in NumPy."""

import asyncio
import sys

import numpy as np
from _photo import draw, photo

import callboard as cb
from callboard.kernel.fft import Irfft, Rfft

WIDTH = 6.0  # wavelengths across the picture that the low pass keeps half of


async def main(name: str) -> None:
    picture = photo()
    height, width = picture.shape
    # How often a point of the half spectrum swings across the picture, and a bell curve of that.
    waves = np.hypot(np.fft.fftfreq(height, 1 / height)[:, None], np.fft.rfftfreq(width, 1 / width))
    bell = np.exp2(-((waves / WIDTH) ** 2)).astype("f4")

    async with cb.device(name) as gpu:
        spectrum = gpu.ask(Rfft(x=gpu.put(picture), axes=(0, 1)))  # c64[256, 129]: a real array has half a spectrum
        points = await spectrum.get()
        low = gpu.ask(Irfft(x=gpu.put(bell * points), axes=(0, 1)))  # the message; gpu.fft.irfft2(...) makes the same
        high = gpu.fft.irfft2(gpu.put((1 - bell) * points))
        soft, edges = await low.get(), await high.get()
        plans = (await gpu.stats()).plans["fft"]

    wanted = np.fft.irfft2(bell * np.fft.rfft2(picture))
    assert np.allclose(points, np.fft.rfft2(picture), atol=1e-2)
    assert np.allclose(soft, wanted, atol=1e-5)
    assert np.allclose(soft + edges, picture, atol=1e-5)  # what one keeps, the other takes
    assert plans.hits >= 1  # the second inverse transform found the plan of the first

    kept = np.sum(soft**2) / np.sum(picture**2)
    print(draw(picture, soft, edges, columns=36))
    print(f"the photograph, its low pass ({kept:.1%} of the energy, {WIDTH:.0f} waves across) and its high pass")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
