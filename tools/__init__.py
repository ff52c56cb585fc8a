"""Scripts that make what the repository commits: toy models, reference pages, terminal pictures."""
