"""The conformance suite of batches on the stand-ins."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_solver_batched import *  # noqa: F403 - its tests, with this folder's session
