"""Planted bugs: a catalogue, and the study of how many `parvibench check` finds."""
