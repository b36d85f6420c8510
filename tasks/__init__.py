"""Benchmark targets: one file per task family."""
