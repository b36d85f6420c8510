"""The contracts everything else leans on; imports nothing else of the package."""
