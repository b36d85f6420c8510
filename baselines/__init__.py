"""Algorithms: one file each, reading like its paper."""
