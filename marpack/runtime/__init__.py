"""What a handler sees, and the messages that carry it: plain data, without torch."""
