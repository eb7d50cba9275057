"""The conformance suite of factors on the stand-ins."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_cutlass_factors import *  # noqa: F403 - its tests, with this folder's session
