"""The conformance suites on our own kernels, compiled by g++ and run on host memory, thread by thread."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_attention import *  # noqa: F403 - its tests, with this folder's session
from test_attention_paged import *  # noqa: F403 - likewise

del test_any_extents  # noqa: F821 - of head dims beyond the shared memory that a launch has without asking
pytestmark = pytest.mark.timeout(600)
