"""What the server's own loader makes of model folders; runs in the peer's Python, one child process per folder.

Reads lines of JSON {name, folder, handler} from stdin; answers each with {name, load, answer}: null, or the trouble.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

FOLDER, HANDLER = "folder", "handler"


def main() -> None:
    import torch  # noqa: F401 - so that the children need not import it again
    import ts.torch_handler.image_classifier  # noqa: F401

    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        case = json.loads(line)
        answer = {"name": case["name"], **_in_child(case)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _in_child(case: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(_ask(case)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"load": "the process died", "answer": None}


def _ask(case: dict[str, Any]) -> dict[str, str | None]:
    os.chdir(case[FOLDER])
    sys.path.insert(0, case[FOLDER])
    try:
        service = _load(case)
    except BaseException as error:  # noqa: BLE001 - whatever a handler does
        return {"load": repr(error), "answer": None}
    try:
        return {"load": None, "answer": _answer(service)}
    except BaseException as error:  # noqa: BLE001 - whatever a handler does
        return {"load": None, "answer": repr(error)}


def _load(case: dict[str, Any]) -> Any:
    import ts
    from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
    from ts.model_loader import TsModelLoader

    metrics = MetricsCacheYamlImpl(config_file_path=str(Path(ts.__file__).with_name("configs") / "metrics.yaml"))
    metrics.initialize_cache()
    metrics.model_name = "probe"
    metrics.set_request_ids("load")
    return TsModelLoader().load("probe", case[FOLDER], case[HANDLER], None, 1, None, True, metrics)


def _answer(service: Any) -> str | None:
    from ts.context import RequestProcessor

    context = service.context
    context.request_ids = {0: "request"}
    context.request_processor = [RequestProcessor({})]
    context.metrics.set_request_ids("request")
    answer = service._entry_point([{"body": bytearray(b"x")}], context)
    return None if isinstance(answer, list) and len(answer) == 1 else f"not a list of one: {answer!r:.100}"


if __name__ == "__main__":
    main()
