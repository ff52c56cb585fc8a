"""The server: it serves archives over HTTP with TorchServe's API."""
