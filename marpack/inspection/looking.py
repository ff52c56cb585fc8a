"""One member looked into: whether it is weights and what they hold, and the pickles in it."""

from msgspec import Struct

from marpack.archive.protocol import Archive
from marpack.errors import DamagedArchiveError
from marpack.findings import Finding
from marpack.inspection.facts import WeightsFacts
from marpack.inspection.nesting import Walk
from marpack.inspection.pickles import PickleFacts, Unscanned
from marpack.inspection.reading import is_elsewhere, too_costly
from marpack.inspection.verification import damaged
from marpack.inspection.weights import weights_facts
from marpack.weights.contents import read_contents
from marpack.weights.detect import recognize
from marpack.weights.kind import Kind


class Looked(Struct, frozen=True, kw_only=True):
    """What one member holds."""

    weights: WeightsFacts | None = None
    pickles: tuple[PickleFacts, ...] = ()
    unscanned: tuple[Unscanned, ...] = ()
    damage: Finding | None = None


def look(archive: Archive, name: str, walk: Walk) -> Looked:
    """Look into one member; a damaged one is a finding, not an end."""
    try:
        return _look(archive, name, walk)
    except DamagedArchiveError as error:
        return Looked(unscanned=(Unscanned(name, "it is damaged"),), damage=damaged(error, archive, name))


def _look(archive: Archive, name: str, walk: Walk) -> Looked:
    if too_costly(archive, name):
        return Looked(unscanned=(Unscanned(name, "it is compressed, and would have to be fetched whole"),))
    with archive.open(name) as file:
        found = recognize(file)
        contents = None if found.kind is Kind.UNKNOWN else read_contents(file, found, frugal=is_elsewhere(archive))
        seen = list(walk.file(name, file, found))
    return Looked(
        weights=weights_facts(name, contents) if contents else None,
        pickles=tuple(item for item in seen if isinstance(item, PickleFacts)),
        unscanned=tuple(item for item in seen if isinstance(item, Unscanned)),
    )
