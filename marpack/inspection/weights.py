"""The weights in an archive: their headers, summed up."""

from marpack.inspection.facts import TensorFacts, WeightsFacts
from marpack.weights.contents import Contents
from marpack.weights.tensors import Placed

_LARGEST = 10


def weights_facts(member: str, contents: Contents) -> WeightsFacts:
    """Sum up one weights file."""
    tensors = [placed.tensor for placed in contents.tensors]
    dtypes: dict[str, int] = {}
    for tensor in tensors:
        dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + 1
    largest = sorted(tensors, key=lambda tensor: -tensor.bytes)[:_LARGEST]
    return WeightsFacts(
        member=member,
        kind=contents.kind,
        tensors=len(tensors),
        parameters=sum(tensor.elements for tensor in tensors),
        bytes=_stored_bytes(contents.tensors),
        dtypes=dict(sorted(dtypes.items(), key=lambda item: -item[1])),
        largest=tuple(
            TensorFacts(name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, bytes=tensor.bytes)
            for tensor in largest
        ),
        methods=contents.methods,
        inputs=contents.inputs,
        outputs=contents.outputs,
        metadata=contents.metadata,
        facts=contents.facts,
        problem=contents.problem,
    )


def _stored_bytes(tensors: tuple[Placed, ...]) -> int:
    """Return the bytes of all storages; two tensors that share one, as tied weights do, count once."""
    storages = {placed.storage: placed.storage_bytes for placed in tensors if placed.storage is not None}
    loose = sum(placed.storage_bytes or placed.tensor.bytes for placed in tensors if placed.storage is None)
    return sum(storages.values()) + loose
