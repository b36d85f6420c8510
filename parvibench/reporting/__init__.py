"""Leaderboards of a stored run: tables, figures, and one self-contained page."""
