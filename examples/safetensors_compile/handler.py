"""Estimate a disease's progression and its range from a patient's measurements."""

import torch
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException

MEASUREMENTS = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


class ProgressionHandler(BaseHandler):
    """Define the input and the output; the base handler loads, compiles and runs the model."""

    def preprocess(self, data):
        """Read one JSON object per request, `{measurement: number}`: `[N, 10]`."""
        return torch.tensor([measurements(row.get("data") or row.get("body")) for row in data], device=self.device)

    def postprocess(self, data):
        """Return the median and the range of four of five patients per request."""
        return [{"progression": round(mid), "from": round(low), "to": round(high)} for low, mid, high in data.tolist()]


def measurements(patient):
    missing = [name for name in MEASUREMENTS if name not in patient] if isinstance(patient, dict) else MEASUREMENTS
    if missing:
        raise PredictionException(f"send a JSON object with numbers for {', '.join(missing)}", 400)
    return [float(patient[name]) for name in MEASUREMENTS]
