"""`parvibench check`: has the quality of a sampler got worse?"""
