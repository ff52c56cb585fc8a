"""A patient's measurements in, an estimate of the disease's progression and its range out."""

import torch
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException

MEASUREMENTS = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


class ProgressionHandler(BaseHandler):
    """Loading, compiling and inference are the base handler's; only what goes in and what comes out is ours."""

    def preprocess(self, data):
        """Take one JSON object per request, `{measurement: number}`: `[N, 10]`."""
        return torch.tensor([measurements(row.get("data") or row.get("body")) for row in data], device=self.device)

    def postprocess(self, data):
        """Return per request the median and the range that four of five patients stay in."""
        return [{"progression": round(mid), "from": round(low), "to": round(high)} for low, mid, high in data.tolist()]


def measurements(patient):
    missing = [name for name in MEASUREMENTS if name not in patient] if isinstance(patient, dict) else MEASUREMENTS
    if missing:
        raise PredictionException(f"send a JSON object with numbers for {', '.join(missing)}", 400)
    return [float(patient[name]) for name in MEASUREMENTS]
