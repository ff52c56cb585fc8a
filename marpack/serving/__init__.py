"""The server: archives answer over HTTP, where a TorchServe stood."""
