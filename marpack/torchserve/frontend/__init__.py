"""What the server's frontend makes of HTTP messages: requests out of bodies and heads, answers out of responses."""
