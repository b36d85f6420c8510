"""Building and certifying reference samples."""
