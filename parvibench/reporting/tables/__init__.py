"""Tables of a report: numbers, tests and ranks, and the entries in which they are shown."""
