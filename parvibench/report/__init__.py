"""Leaderboards of a stored run: tables, figures, and one self-contained page."""

from parvibench.callable_package import call_through

call_through(__name__, "parvibench.workflow:report")
