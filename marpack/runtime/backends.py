"""The torch.compile backends that the server lets through (contract §6)."""

import enum
import logging

logger = logging.getLogger(__name__)


class PT2Backend(str, enum.Enum):  # noqa: UP042 - the contract's base classes
    """Backends by the names that model-config.yaml uses."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    INDUCTOR = "inductor"
    NVFUSER = "nvfuser"
    AOT_NVFUSER = "aot_nvfuser"
    AOT_CUDAGRAPHS = "aot_cudagraphs"
    OFI = "ofi"
    FX2TRT = "fx2trt"
    ONNXRT = "onnxrt"
    IPEX = "ipex"
    TORCHXLA_TRACE_ONCE = "torchxla_trace_once"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    HPU_BACKEND = "hpu_backend"


def check_valid_pt2_backend(backend: str) -> bool:
    """Say whether the server compiles with this backend; it skips every other one with a log line."""
    if backend in [member.value for member in PT2Backend]:  # no set: a list in its place cannot be hashed
        return True
    logger.warning("%s is not a backend the server knows", backend)
    return False
