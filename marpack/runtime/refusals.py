"""What the server's frontend refuses by itself: its handler never hears of the request."""


class FormError(ValueError):
    """A request, most often a form, that the frontend answers with an error of its own; no handler gets to see it."""

    def __init__(self, message: str, *, status: int = 500, kind: str = "ErrorDataDecoderException") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind


class HeadError(FormError):
    """A request whose head the frontend cannot read, or does not want to."""

    def __init__(self) -> None:
        super().__init__("Invalid HTTP message.", status=400, kind="BadRequestException")


class TooLargeError(FormError):
    """A request with a larger body than the frontend takes in."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the request has {size:,} bytes; the server takes {limit:,}", status=413)
