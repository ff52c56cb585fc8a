"""Scripts that make what the repository commits, and that measure it: none of them is part of the package."""
