"""docs/reference/model-config.md: the keys of the model config, from the table that reads them."""

from marpack.torchserve.model_config import KEYS, ConfigKey
from tools.reference.page import NOTE, page

EXAMPLE = """```{ .yaml .excerpt }
config:
  batchSize: 8
  maxBatchDelay: 50 # ms
  minWorkers: 2
  maxWorkers: 2
  responseTimeout: 30 # s
  threshold: 0.7 # your handler's own
```"""
NOTES = """\
- **Your own keys** go beside these: the handler reads them from
  `context.model_yaml_config["threshold"]`. What is spelled almost like a key of the server's is a
  [finding](../findings.md).
- **A value of the wrong type** counts as not set, as does one that is too small: `batchSize: "8"` is 1.
  `marpack build` warns.
- **Who has the last word.** On the server the config goes before what a registration says of workers
  and timeouts, and after it for `batch_size` and `max_batch_delay`. In `marpack serve` an option of the
  command line (`--workers`, `--batch-size`, `--timeout` …) goes before the config, and the config
  before `config.properties`. In `marpack run` and `check`, `--timeout` and `--startup-timeout` go
  before it.
- **Batches** are made by the server from requests that wait together. `marpack run` has no queue: it
  makes them of the inputs, as `--batch-size` says.
- **What splits a model over GPUs**: torchrun's first process is played, with the environment that it
  would have (`RANK`, `WORLD_SIZE`, `MASTER_ADDR` …). With more than one, a note says that the others
  are missing.
- **Sequences**: each request has the id of its sequence, one of its own if it names none. Nothing keeps
  the requests of a sequence at one worker: serve such models with one. How many there are and how long
  they last is not bounded.
- **`continuousBatching`**: a batch is asked again until each of its requests has stopped; no new ones
  join it meanwhile. **`asyncCommunication`**: what `handle` returns is awaited; the next batch comes
  after it."""


def model_config() -> str:
    """Return the keys of the model config, and what becomes of each."""
    heads = ["key", "takes", "without it", "", "read by", "`marpack run`, `check`", "`marpack serve`"]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(row(name, key) for name, key in KEYS.items())]
    return page(
        "# Model config keys",
        "The model config says how a model is served. It is `config` in `marpack.yaml`, or a YAML file that `config`"
        " names; in the archive it is the file that the manifest calls `configFile`, as a rule `model-config.yaml`."
        " TorchServe's frontend reads it when a model is registered, and the handler gets all of it.",
        EXAMPLE,
        "These are the keys that somebody reads, what the server does without them, and what marpack makes of them:"
        " *no* is a key without effect there, and what stands behind it is the option to use instead.",
        "\n".join(rows),
        NOTES,
        NOTE,
    )


def row(name: str, key: ConfigKey) -> str:
    cells = (key.default, key.meaning, key.reader, key.run, key.serve)
    return f"| `{name}` | {takes(key)} | {' | '.join(cells)} |"


def takes(key: ConfigKey) -> str:
    """Return the kinds of value that a key takes, in words."""
    if isinstance(key.takes, int):
        return f"a whole number, from {key.takes} on"
    if isinstance(key.takes, tuple):
        return ", ".join(f"`{word}`" for word in key.takes)
    words = {bool: "`true` or `false`", list: "a list of whole numbers", str: "text", dict: "a mapping"}
    return words.get(key.takes, "a mapping")
