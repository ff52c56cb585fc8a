"""Request envelopes: another protocol's requests → a handler's rows, and its answers back (contract §9)."""
