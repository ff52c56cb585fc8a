"""Bulk scoring on a Ray cluster: Ray Data hands out the parts that are missing, and an actor makes each of them.

    driver   plans as on one machine, holds the output folder's lock, adds up
    actor    loads the model once; scores the rows of a part as one machine does, and gives the part its name

A part's name follows from its rows, so that one which Ray asks for again replaces itself. Nothing but figures comes
back: rows go from the inputs to the actors, and from there into the output, which every node must see.
"""

import os

from marpack.errors import MissingExtraError

for _name, _value in (
    ("RAY_USAGE_STATS_ENABLED", "0"),  # the user has not agreed
    # ms; with the retries that a part has, they outlast the minute in which Ray finds out that a node is gone
    ("RAY_task_actor_unavailable_retry_delay_base_ms", "5000"),
    ("RAY_task_actor_unavailable_retry_max_delay_ms", "30000"),
):
    os.environ.setdefault(_name, _value)  # which Ray reads when it is imported
try:
    import ray as _ray  # noqa: F401 - asked for before any module of this room, each of which needs it
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise MissingExtraError("ray", "ray", "scoring on a cluster") from error
