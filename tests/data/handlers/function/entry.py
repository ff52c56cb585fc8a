import json
import os

import numpy as np
import onnxruntime as ort

session = None


def load(context):
    global session
    session = ort.InferenceSession(os.path.join(context.system_properties["model_dir"], "model.onnx"))


def predict(data, context):
    if data is None:
        load(context)
        return None
    rows = np.stack([np.asarray(json.loads(row["body"]), dtype=np.float32) for row in data])
    return session.run(None, {"x": rows})[0].tolist()
