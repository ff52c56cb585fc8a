"""The id of a request, which its handler, its client and the log see."""

import uuid

from marpack.serving.api import Call


def test_is_a_random_uuid_and_new_each_time():
    given = [Call(None, "").id for _ in range(200)]
    read = [uuid.UUID(text) for text in given]
    assert [str(one) for one in read] == given
    assert {(one.version, one.variant) for one in read} == {(4, uuid.RFC_4122)}
    assert len(set(given)) == len(given)
