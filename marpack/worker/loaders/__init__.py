"""One module per model format behind one registry; the device and torch.compile beside them."""
