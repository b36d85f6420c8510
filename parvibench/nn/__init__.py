"""Batched networks and optimisers: flat (R, P) parameters, hand-written backward."""
