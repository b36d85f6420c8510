"""Tasks made of what a user has: a log density, or a Pyro model."""
