"""Metrics, one family a file, and their noise floors."""
