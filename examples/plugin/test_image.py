"""``device.image`` against NumPy; needs the distribution installed, so that its entry points are found."""

from collections.abc import Iterator

import numpy as np
import pytest
from callboard_image.api import ImageApi
from callboard_image.cpu import WEIGHTS

import callboard as cb
from callboard.core.mode import Blocking


@pytest.fixture(scope="module")
def gpu() -> Iterator[cb.sync.Device]:
    with cb.sync.device("cpu", isolation="thread") as device:
        yield device


def test_it_computes_what_numpy_does(gpu: cb.sync.Device) -> None:
    photo = np.random.default_rng(0).random((5, 7, 3), "f4")
    found = gpu.library(ImageApi[Blocking]).grayscale(gpu.put(photo))
    np.testing.assert_allclose(found.get(), photo @ WEIGHTS, rtol=1e-6)


def test_it_is_found_by_its_entry_point(gpu: cb.sync.Device) -> None:
    assert "image" in dir(gpu)


def test_another_shape_is_refused_before_anything_is_sent(gpu: cb.sync.Device) -> None:
    with pytest.raises(cb.ShapeError, match=r"image.grayscale: image is f32\[3, 3\]; expected"):
        gpu.library(ImageApi[Blocking]).grayscale(gpu.zeros((3, 3)))
