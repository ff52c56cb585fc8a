"""BaseHandler and the built-in handlers; importing this package itself imports no torch."""
