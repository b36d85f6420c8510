"""Warning flags of a cell: blown up, transient, still improving, no better than the start."""
