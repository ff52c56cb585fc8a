"""Results in, text out: the console, JSON and HTML."""
