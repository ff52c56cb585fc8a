"""The process a handler runs in: its client in the parent, its service in the child."""
