"""docs/reference/model-config.md: the keys of the model config, from the table that reads them."""

from marpack.torchserve.model_config import KEYS, ConfigKey
from tools.reference.page import NOTE, page

FRONTEND = "frontend"
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
- **What splits a model over GPUs**: a single process of torchrun is started with the environment that it
  would have (`RANK`, `WORLD_SIZE`, `MASTER_ADDR` …). A model with more processes is refused: its first
  process waits for the others.
- **Sequences**: each request has the id of its sequence, one of its own if it names none. Nothing keeps
  the requests of a sequence at one worker: serve such models with one. How many there are and how long
  they last is not bounded.
- **`continuousBatching`**: a batch is asked again until each of its requests has stopped; no new ones
  join it meanwhile. **`asyncCommunication`**: what `handle` returns is awaited; the next batch comes
  after it."""


def model_config() -> str:
    """Return the keys of the model config, and what becomes of each."""
    return page(
        "# Model config keys",
        "The model config says how a model is served. It is `config` in `marpack.yaml`, or a YAML file that `config`"
        " names; in the archive it is the file that the manifest calls `configFile`, as a rule `model-config.yaml`."
        " TorchServe's frontend reads it when a model is registered, and the handler gets all of it.",
        EXAMPLE,
        "These are the keys that somebody reads, what the server does without them, and what marpack makes of them:"
        " *no* is a key without effect there, and what stands behind it is the option to use instead.",
        "## What the frontend reads",
        table({name: key for name, key in KEYS.items() if key.reader == FRONTEND}),
        "## What handlers read",
        table({name: key for name, key in KEYS.items() if key.reader != FRONTEND}),
        "## All of them",
        NOTES,
        NOTE,
    )


def table(keys: dict[str, ConfigKey]) -> str:
    rows = [f"| `{name}` | {described(key)} | {key.run} | {key.serve} |" for name, key in keys.items()]
    return "\n".join(["| key | | `run`, `check` | `serve` |", "|---|---|---|---|", *rows])


def described(key: ConfigKey) -> str:
    """Return what a key means, what it takes, what counts without it, and who reads it."""
    reader = "" if key.reader == FRONTEND else f"read by {key.reader}, "
    without = "" if key.default == "none" else f"; without it {key.default}"
    return f"{key.meaning}<br>*{reader}{takes(key)}{without}*"


def takes(key: ConfigKey) -> str:
    """Return the kinds of value that a key takes, in words."""
    if isinstance(key.takes, int):
        return f"a whole number, from {key.takes} on"
    if isinstance(key.takes, tuple):
        return ", ".join(f"`{word}`" for word in key.takes)
    words = {bool: "`true` or `false`", list: "a list of whole numbers", str: "text", dict: "a mapping"}
    return words.get(key.takes, "a mapping")
