"""The conformance suite on our own kernels as they are: compiled by g++ and run on host memory, thread by thread.

Minutes, so in a run of all tests; ``test_kernels.py`` has some of it, and smaller.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_attention import *  # noqa: F403 - its tests, with this folder's session
from test_attention_paged import *  # noqa: F403 - likewise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
