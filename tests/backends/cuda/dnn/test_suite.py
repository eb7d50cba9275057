"""The conformance suites of what our own kernels compute, compiled by g++ and run on host memory, thread by thread."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_dnn_elements import *  # noqa: F403 - its tests, with the session below
from test_dnn_losses import *  # noqa: F403 - likewise
from test_dnn_norms import *  # noqa: F403 - likewise
from test_dnn_pooling import *  # noqa: F403 - likewise
from test_dnn_tables import *  # noqa: F403 - likewise

del test_dropout  # noqa: F821 - its numbers come from the kernels of rng, which take a minute to compile
del test_top_k_of_more_than_a_block_sorts  # noqa: F821 - CUB sorts them
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a kernel for each setting


@pytest.fixture
def session(host: Any) -> Any:
    return host
