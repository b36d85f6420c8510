"""Questions about metrics."""
