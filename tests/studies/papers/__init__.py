"""The audit of the papers: every published number and ours, and the papers' claims on runs of our own."""
