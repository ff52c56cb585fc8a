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
- **Your own keys**: the handler reads them from `context.model_yaml_config["threshold"]`. A key that resembles one of
  the server's is a [finding](../findings.md).
- **Values of a wrong type**, or below the minimum, count as not set: `batchSize: "8"` is 1. `marpack build` warns.
- **Precedence**: on the server, the config overrides a registration's workers and timeouts; a registration overrides
  `batchSize` and `maxBatchDelay`. In `marpack serve`, the command line overrides the config, and the config overrides
  `config.properties`. In `marpack run` and `check`, `--timeout` and `--startup-timeout` override the config.
- **Batches**: the server makes them of waiting requests, `marpack run` of the inputs, by `--batch-size`.
- **Splitting over GPUs**: marpack starts a single process with the environment of torchrun (`RANK`, `WORLD_SIZE`,
  `MASTER_ADDR` …). It refuses models with more processes, because the first one waits for the others.
- **Sequences**: each request has the id of its sequence, or an id of its own. Serve such models with one worker:
  marpack does not keep a sequence at one worker, and limits neither their number nor their time.
- **`continuousBatching`**: `handle` is called until each request of the batch has stopped; no requests join.
- **`asyncCommunication`**: the result of `handle` is awaited; the next batch follows."""


def model_config() -> str:
    """Return the keys of the model config, and what becomes of each."""
    return page(
        "# Model config keys",
        "The model config says how a model is served. It is `config` in `marpack.yaml`: a mapping, or the name of a"
        " YAML file. In the archive, the manifest's `configFile` names it, usually `model-config.yaml`. TorchServe's"
        " frontend reads it when a model is registered; the handler gets all of it.",
        EXAMPLE,
        "The tables show each key's meaning, values and default, and its effect in marpack. *No* means no effect; an"
        " option after it replaces the key.",
        "## Keys of the frontend",
        table({name: key for name, key in KEYS.items() if key.reader == FRONTEND}),
        "## Keys of handlers",
        table({name: key for name, key in KEYS.items() if key.reader != FRONTEND}),
        "## Rules for all keys",
        NOTES,
        NOTE,
    )


def table(keys: dict[str, ConfigKey]) -> str:
    rows = [f"| `{name}` | {described(key)} | {key.run} | {key.serve} |" for name, key in keys.items()]
    return "\n".join(["| key | | `run`, `check` | `serve` |", "|---|---|---|---|", *rows])


def described(key: ConfigKey) -> str:
    """Return what a key means, its values, its default, and who reads it."""
    reader = "" if key.reader == FRONTEND else f"read by {key.reader}, "
    without = "" if key.default == "none" else f"; default: {key.default}"
    return f"{key.meaning}<br>*{reader}{takes(key)}{without}*"


def takes(key: ConfigKey) -> str:
    """Return the kinds of value that a key takes, in words."""
    if isinstance(key.takes, int):
        return f"integer ≥ {key.takes}"
    if isinstance(key.takes, tuple):
        return ", ".join(f"`{word}`" for word in key.takes)
    words = {bool: "`true` or `false`", list: "list of integers", str: "text", dict: "mapping"}
    return words.get(key.takes, "mapping")
