"""Golden values: a few numbers of short deterministic runs, stored in a file whose diff a reviewer reads."""
