"""Do what each request says, in Python, and answer with what was logged meanwhile, times and hosts struck out."""

import json
import logging
import re

from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes

VOLATILE = re.compile(r"#hostname:[^,]*,\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|request-[a-z0-9-]+")


class Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.kept = []

    def emit(self, record):
        message = record.getMessage()
        # How a refusal is worded is not compared, that it is one is.
        if message.startswith("[METRICS]"):
            line = VOLATILE.sub("*", message)
            self.kept.append(line if "|#" in line else "[METRICS] refused")


def handle(data, context):
    if data is None:
        return None
    lines = Lines()
    logging.getLogger().addHandler(lines)
    scope = {"metrics": context.metrics, "context": context, "Dimension": Dimension, "MetricTypes": MetricTypes}
    try:
        exec(bytes(data[0]["body"]).decode(), scope)
        said = scope.get("answer")
    except Exception as error:  # noqa: BLE001 - its kind is the answer
        said = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    finally:
        logging.getLogger().removeHandler(lines)
    return [{"said": VOLATILE.sub("*", json.dumps(said)), "lines": lines.kept}]
