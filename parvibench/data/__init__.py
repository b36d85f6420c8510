"""Data sets: checksummed download, loaders, splits, standardisation."""
