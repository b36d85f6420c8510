"""Programs of JAX on problems: the library, log densities by callback, and the count of evaluations in compiled code."""
