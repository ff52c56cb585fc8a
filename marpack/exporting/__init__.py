"""Archives exported for other platforms: one folder a target, which needs nothing else."""
