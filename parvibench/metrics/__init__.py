"""Metrics, one family a file, and the noise floors that calibrate them."""
