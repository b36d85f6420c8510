"""Running one chunk of a cell: loop, clock, checkpoints and the measurements at them."""
