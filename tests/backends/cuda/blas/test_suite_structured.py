"""The conformance suite on the stand-ins: symmetric, triangular and banded matrices."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_blas_structured import *  # noqa: F403 - its tests, with this folder's session
