"""What ParVIBench does, as functions: one module a verb. The command line calls these and nothing else.

The verbs of everyday use are imported lazily as ``parvibench.NAME``; the others are called by their module.
"""
