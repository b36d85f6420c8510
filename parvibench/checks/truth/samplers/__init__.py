"""Questions for any sampler, whatever its settings: moments within a tolerance, the contract, dependence, exactness."""
