import logging
from typing import TYPE_CHECKING

from pipeline.config import Settings
from pipeline.steps import clean, split
from ts.handler_utils.timer import timed
from ts.torch_handler.base_handler import BaseHandler
from ts.utils.util import PredictionException, map_class_to_label

if TYPE_CHECKING:
    from collections.abc import Sequence

try:
    import intel_extension_for_pytorch as ipex
except ImportError:
    ipex = None

logger = logging.getLogger(__name__)
Batch = list[dict]
DEFAULT = Settings()


class PipelineHandler(BaseHandler):
    def initialize(self, context):
        super().initialize(context)
        self.settings = Settings(**(self.model_yaml_config.get("settings") or {}))

    @timed
    def preprocess(self, data: "Sequence[dict]"):
        rows = [clean(row.get("data") or row.get("body")) for row in data]
        if not all(rows):
            raise PredictionException("an empty text", 400)
        return super().preprocess([split(row) for row in rows])

    def postprocess(self, data):
        return map_class_to_label(data.softmax(1).tolist(), self.mapping)


if __name__ == "__main__":
    import argparse

    class Demo:
        pass

    argparse.ArgumentParser().parse_args()
