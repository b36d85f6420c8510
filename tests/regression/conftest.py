"""Makes the packages of this folder importable by their names."""
