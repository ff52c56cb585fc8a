"""BaseHandler and the built-in handlers, compatible with TorchServe's."""
