"""Draws that users bring: files and objects of many kinds, read by the names of their columns and dimensions."""
