"""The metrics a handler emits through `context.metrics`, in the server's line format (contract §9)."""
