"""Loaded by a broker under test before all else: the wall's clock is off by OTHER_CLOCK_S
seconds."""

import os
import time

OFF_S = int(os.environ.get("OTHER_CLOCK_S", "0"))

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + OFF_S
time.time_ns = lambda: _time_ns() + OFF_S * 1_000_000_000
