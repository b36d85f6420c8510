"""Planted bugs: the catalogue, and what plants one and runs `parvibench check` on it."""
