"""Return the species of an iris flower from four lengths, with a function in place of a class."""

import json
from pathlib import Path

import torch

net = None
labels = None


def predict(data, context):
    """Return one species per row; the first call has no data and only loads the model."""
    if net is None:
        load(Path(context.system_properties["model_dir"]), context.manifest["model"]["serializedFile"])
    if data is None:
        return None
    flowers = torch.tensor([lengths(row.get("data") or row.get("body")) for row in data])
    with torch.inference_mode():
        species = net(flowers).argmax(1).tolist()
    return [labels[str(index)] for index in species]


def load(folder, weights):
    global net, labels  # noqa: PLW0603 - one model per worker
    net = torch.jit.load(folder / weights).eval()
    labels = json.loads((folder / "index_to_name.json").read_text())


def lengths(line):
    """Read a line such as `5.1,3.5,1.4,0.2`: sepal and petal, length and width, in centimeters."""
    text = line if isinstance(line, str) else line.decode()  # text/plain and text/csv arrive as str
    return [float(value) for value in text.split(",")]
