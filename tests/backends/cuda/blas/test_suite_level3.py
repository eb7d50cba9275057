"""The conformance suite on the stand-ins: matrices."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_blas_level3 import *  # noqa: F403 - its tests, with this folder's session
