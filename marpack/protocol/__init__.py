"""What parent and worker exchange: messages, diagnostics, and the settings of a handler."""
