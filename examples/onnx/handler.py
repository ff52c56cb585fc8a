"""Return the cultivar of a wine from its chemical analysis."""

import torch
from features import FEATURES
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException


class WineHandler(BaseHandler):
    """Run the ONNX Runtime session that the base handler creates from `wine.onnx`."""

    def preprocess(self, data):
        """Read one JSON object per request, `{feature: number}`: `[N, 13]`."""
        return torch.tensor([measurements(row.get("data") or row.get("body")) for row in data])

    def inference(self, data, *args, **kwargs):
        """Run the session on the CPU: `[N, 3]` probabilities."""
        name = self.model.get_inputs()[0].name
        return self.model.run(None, {name: data.numpy()})[0]

    def postprocess(self, data):
        """Return `{cultivar: probability}` per request, in the labels' order."""
        return [{self.mapping[str(i)]: round(p, 4) for i, p in enumerate(row)} for row in data.tolist()]


def measurements(wine):
    if not isinstance(wine, dict):
        raise PredictionException("send a JSON object with content type application/json", 400)
    missing = [name for name in FEATURES if name not in wine]
    if missing:
        raise PredictionException(f"not in the analysis: {', '.join(missing)}", 400)
    return [float(wine[name]) for name in FEATURES]
