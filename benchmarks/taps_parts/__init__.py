"""The parts of `benchmarks/taps.py`."""
