"""`parvibench check`: statistical tests of whether a sampler has got worse."""

from parvibench.callable_package import call_through

call_through(__name__, "parvibench.workflow:check")
