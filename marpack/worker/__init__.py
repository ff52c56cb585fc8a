"""The child process that a handler runs in, and the only room that may import torch."""
