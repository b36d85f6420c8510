"""The result store on disk: records, samples, curves, and reading and merging them."""
