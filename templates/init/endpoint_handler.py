"""Calls EndpointHandler, the class in handler.py that Hugging Face's Inference Endpoints call, on TorchServe."""

import io
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # the archive holds all files; transformers reads this when it is imported

from handler import EndpointHandler
from PIL import Image
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    """Makes one EndpointHandler, and calls it once per request."""

    def initialize(self, context):
        """Let EndpointHandler load its model from the model folder."""
        self.endpoint = EndpointHandler(context.system_properties["model_dir"])
        self.initialized = True

    def handle(self, data, context):
        """Return the response to each request of a batch."""
        headers = [context.get_all_request_header(index) for index in range(len(data))]
        return [self.endpoint(read_request(*each)) for each in zip(data, headers, strict=True)]


def read_request(row, headers):
    """Return a request as Inference Endpoints pass it: JSON's object, otherwise a dict with the body as "inputs"."""
    body, lower = row.get("data") or row.get("body"), {name.lower(): value for name, value in headers.items()}
    if lower.get("content-type", "").startswith("image/"):
        body = Image.open(io.BytesIO(body))
    return body if isinstance(body, dict) else {"inputs": body}
