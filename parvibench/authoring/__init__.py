"""User-defined samplers: functions for one replicate, kernels in JAX, and templates."""
