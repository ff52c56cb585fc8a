"""Do what each request's body says, in Python: `answer = …` is its row's answer, `answers = …` the whole return."""

import os  # noqa: F401 - this and the next two are for the requests' use
import sys  # noqa: F401
from importlib import import_module as imported  # noqa: F401

from ts.handler_utils.utils import send_intermediate_predict_response
from ts.utils.util import PredictionException


def handle(data, context):
    if data is None:
        return None
    answers = [None] * len(data)
    for idx, row in enumerate(data):
        source = row.get("code") or row.get("data") or row.get("body")

        def send(pieces, ids=None, message="ok", code=200):
            send_intermediate_predict_response(pieces, ids or context.request_ids, message, code, context)

        scope = globals() | {"data": data, "context": context, "idx": idx, "answers": answers, "send": send}
        scope["PredictionException"] = PredictionException
        exec(source if isinstance(source, str) else bytes(source).decode(), scope)
        answers = scope["answers"]
        if "answer" in scope:
            answers[idx] = scope["answer"]
    return answers
