"""Puts the repository on sys.path, as `python sweep.py` does: conf and trainers are not installed."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.append(ROOT)
