"""Shorter ways to a sampler of one's own: functions and classes that see one replicate, and files to start from."""
