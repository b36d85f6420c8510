"""Claims of the four papers, a module each; ``claim`` holds the rule."""
