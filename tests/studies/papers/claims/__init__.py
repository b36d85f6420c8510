"""Claims of the four papers: ``claims.yaml`` states them, ``claim`` has the rule, and a module a paper measures the effects."""
