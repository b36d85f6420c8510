"""The oracle of traces: a few numbers of short deterministic runs, which move when behaviour moves."""
