"""Constants of the server's modules that handlers import."""

import re

CLEANUP_REGEX = re.compile(r"<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")

# What ts.torch_handler.base_handler found when it was imported on a stock server with a torch of today.
IPEX_AVAILABLE = False
ONNX_AVAILABLE = True
PROFILER_AVAILABLE = True
PT230_AVAILABLE = True
PT2_AVAILABLE = True
XLA_AVAILABLE = False
