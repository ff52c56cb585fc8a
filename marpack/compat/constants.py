"""What ts.torch_handler.base_handler finds when it is imported on a stock server with a torch of today."""

IPEX_AVAILABLE = False
ONNX_AVAILABLE = True
PROFILER_AVAILABLE = True
PT230_AVAILABLE = True
PT2_AVAILABLE = True
XLA_AVAILABLE = False
