"""Handwritten digits in ten groups without their labels: PCA by an SVD, then k-means on eight components."""

import sys

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

AXES, K, STEPS = 8, 10, 20


def grouped(gpu: cb.sync.Device, images: np.ndarray) -> np.ndarray:
    xp = gpu.xp
    x = gpu.put(images)
    x = x - xp.mean(x, axis=0)
    points = x @ xp.linalg.svd(x, full_matrices=False).Vh[:AXES, :].T
    centres = points[:K, :]
    member = points[:, :1]
    for _ in range(STEPS):  # nothing is waited for: each step is called while the one before runs
        far = xp.sum(points**2, axis=1)[:, None] - 2 * (points @ centres.T) + xp.sum(centres**2, axis=1)
        member = xp.argmin(far, axis=1)
        chosen = xp.astype(member[:, None] == xp.arange(K), xp.float32)
        centres = (chosen.T @ points) / xp.sum(chosen, axis=0)[:, None]
    return member.get()


def main(name: str) -> None:
    digits = load_digits()
    with cb.sync.device(name) as gpu:
        member = grouped(gpu, digits.images.reshape(len(digits.labels), -1).astype("f4") / 16)
    right = 0
    for group in range(K):
        labels = np.bincount(digits.labels[member == group], minlength=10)
        right += labels.max(initial=0)
        print(f"group {group}: {labels.sum():4} images, of which {labels.max(initial=0):4} are a {labels.argmax()}")
    share = right / len(digits.labels)
    print(f"{share:.0%} are in a group of their own digit")
    assert share > 0.6


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
