"""A board that others join: archives of results, their acceptance, and editions that freeze a state of it."""
