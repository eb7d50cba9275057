"""A short-time Fourier transform of a rising tone, drawn: overlapping frames, a window, one batched transform."""

import sys

import numpy as np

import callboard as cb

RATE, SECONDS, FRAME, HOP = 16_000, 8, 512, 256
ROWS, WIDTH, SHADES = 16, 64, " .:-=+*#%@"


def spectrogram(gpu: cb.sync.Device, sound: np.ndarray) -> np.ndarray:
    """Decibels, by frame and frequency."""
    xp = gpu.xp
    parts = xp.reshape(gpu.put(sound), (-1, HOP))
    frames = xp.concat([parts[:-1, :], parts[1:, :]], axis=1) * gpu.put(np.hanning(FRAME).astype("f4"))
    spectrum = xp.fft.rfft(frames)
    return (10 * xp.log10(xp.real(spectrum) ** 2 + xp.imag(spectrum) ** 2 + 1e-6)).get()  # one kernel


def main(name: str) -> None:
    time = np.arange(RATE * SECONDS // HOP * HOP) / RATE
    pitch = 500 + 800 * time  # Hz
    sound = np.sin(2 * np.pi * (500 * time + 400 * time**2)).astype("f4")
    with cb.sync.device(name) as gpu:
        decibels = spectrogram(gpu, sound)
    loudest = decibels.argmax(1) * RATE / FRAME
    middle = pitch[HOP::HOP][: len(loudest)]
    assert np.abs(loudest - middle).max() < 2 * RATE / FRAME
    image = decibels[np.linspace(0, len(decibels) - 1, WIDTH).astype(int), : FRAME // 2]
    image = image.reshape(WIDTH, ROWS, -1).max(2).T[::-1]
    shade = ((image - image.min()) / (image.max() - image.min()) * (len(SHADES) - 1)).astype(int)
    print("\n".join("".join(SHADES[s] for s in row) for row in shade))
    print(f"{SECONDS} s, 0 to {RATE // 2} Hz; the tone rises from {loudest[0]:.0f} to {loudest[-1]:.0f} Hz")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
