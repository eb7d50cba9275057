"""The conformance suite on the stand-ins: layouts, epilogues, what is kept for the gradients."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_blas_lt import *  # noqa: F403 - its tests, with this folder's session
