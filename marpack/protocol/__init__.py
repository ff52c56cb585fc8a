"""The exchange between parent and worker: messages, notes, targets, and the settings of a handler."""
