"""Measuring: paired benchmarks of methods and peers, and what they print."""
