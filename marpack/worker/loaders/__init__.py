"""Loading of models: weights formats, eager models, the device and torch.compile."""
