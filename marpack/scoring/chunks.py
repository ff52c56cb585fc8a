"""Some rows on their way: what a handler is asked of them, and their answers as they come."""

from collections.abc import Iterator

from marpack.runner.client import BatchResult
from marpack.runner.pool import Batch
from marpack.scoring.answers import Failure, failure_of
from marpack.scoring.batches import RowBatch
from marpack.scoring.rows import RowRequests
from marpack.torchserve.http import Request, Response

_NUMBERS = 1 << 32  # request ids of one input
_NONE = Response(status=0, body=b"")


class Chunk:
    """Rows that follow each other, and their answers as far as they are known."""

    def __init__(self, number: int, rows: RowBatch) -> None:
        """Take some rows of the input of a number."""
        self.number = number
        self.rows = rows
        self.left = rows.count  # without an answer yet
        self.responses: list[Response] = [_NONE] * rows.count
        self._bare_column: str | None = None
        self.failures: dict[int, Failure] = {}  # by the place of their rows

    def batches(self, maker: RowRequests, size: int) -> Iterator[tuple[Batch, list[int]]]:
        """Yield what is asked, `size` requests at a time, with the places of their rows; settle what cannot be."""
        self._bare_column = maker.bare_column
        requests: list[Request] = []
        places: list[int] = []
        inputs = maker.inputs(self.rows.columns, self.number * _NUMBERS + self.rows.first)
        for place, item in enumerate(inputs):
            if item.refused is not None:
                self._answer(place, item.refused, failure_of(item.refused, (item.why,) if item.why else ()))
                continue
            requests.append(item.request)
            places.append(place)
            if len(requests) == size:
                yield tuple(requests), places
                requests, places = [], []
        if requests:
            yield tuple(requests), places

    def settle(self, places: list[int], outcomes: tuple[BatchResult, ...]) -> None:
        """Take the answers of a batch, whose requests were asked together or one by one."""
        answers = [(response, outcome.troubles) for outcome in outcomes for response in outcome.responses]
        for place, (response, troubles) in zip(places, answers, strict=True):
            self._answer(place, response, failure_of(response, troubles, self._bare_column))

    def _answer(self, place: int, response: Response, failure: Failure | None) -> None:
        self.responses[place] = response
        self.left -= 1
        if failure is not None:
            self.failures[place] = failure
