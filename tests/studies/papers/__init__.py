"""The audit of the papers: every published number beside ours, and the papers' claims on runs of our own."""
