"""Tests of the Python client: `python3 -m unittest discover -s sdk/python -t sdk/python`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "sdk/python/src"))
sys.path.insert(0, str(ROOT / "sdk/suite"))
KEY, TEST_KEY = "at_live_" + "A" * 49, "at_test_" + "B" * 49
