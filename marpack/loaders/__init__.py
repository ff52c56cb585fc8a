"""One module per model format, torch.compile and device; behind one registry."""
