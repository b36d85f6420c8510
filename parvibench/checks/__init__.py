"""`parvibench check`: statistical tests of whether a sampler has got worse."""
