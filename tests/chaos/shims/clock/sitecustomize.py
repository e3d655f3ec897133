"""Set the clock of a Python process AHEAD_S seconds ahead. Files keep the time of the disk."""

import os
import time

_time = time.time
time.time = lambda: _time() + float(os.environ["AHEAD_S"])
