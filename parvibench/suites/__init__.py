"""Suites that ship with the package (YAML)."""
