"""What the server is and what a handler sees: plain data and facts, without torch."""
