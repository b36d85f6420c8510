"""One pass from a stored run to facts: plain rows with their ranks, tests, marks and reasons, which all that is shown reads."""
