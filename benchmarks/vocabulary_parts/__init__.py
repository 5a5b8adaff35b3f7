"""The parts of `benchmarks/vocabulary.py`."""
