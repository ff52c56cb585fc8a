"""The exception by which a handler chooses its own error answer (contract §5)."""

from typing import Any


class PredictionException(Exception):  # noqa: N818 - the contract's name
    """Fail every row of the batch with a status code and message of the handler's choice."""

    def __init__(self, message: Any, error_code: Any = 500) -> None:  # Any: handlers pass what they like
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"
