"""What the server is and what a handler sees: plain data and facts, without torch."""

MAX_BODY = 6_553_500  # bytes: the server's max_request_size and max_response_size, where its operator sets no others
