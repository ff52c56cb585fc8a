"""The parent process: who asks the worker, with what, and what became of it."""
