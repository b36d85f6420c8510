"""Kernels on particles: values and gradients through Gram identities, blockwise where large."""
