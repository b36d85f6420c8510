"""The oracle of the past: fresh replicates against a stored baseline."""
