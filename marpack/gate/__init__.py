"""The deployment gate: inspection and worker → verdict."""
