"""What a handler is given: rows of a batch, and a context, marpack's own or an author's mock."""

from collections.abc import Mapping
from typing import Any, Protocol

# Any: a field is bytearray, str or whatever the JSON held (contract §4)
Rows = list[dict[str, Any]]


class HandlerContext(Protocol):
    """What BaseHandler asks of a context: marpack's own, or an author's mock."""

    manifest: Any  # Any: MANIFEST.json as it stands
    metrics: Any  # Any: the contract names methods, not a class

    @property
    def system_properties(self) -> Mapping[str, Any]:  # Any: paths, numbers, flags
        """The model folder, GPU and limits."""

    def get_request_header(self, idx: int, key: str) -> Any:  # Any: form fields map to {"content-type": …}
        """Return one header of a request, or None."""
