"""Test-time scaling over Ray with lossless speculative decoding."""
