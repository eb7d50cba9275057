"""``batching_lab`` beside this file is shared by the tests of the batching server."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import it from
