"""What is said of a cell beside its number: blown up, transient, still improving, no better than the start."""
