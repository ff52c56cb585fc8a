"""The `ts` names that the worker's own modules provide, and the import of `ts` with them."""

from pathlib import Path

from marpack.torchserve import ts_modules

FOLDER = str(Path(__file__).parent / "children")  # for the search path of Pythons that a handler starts
_TEXT, _VISION, _MICRO_BATCHING = (f"marpack.worker.handlers.{name}" for name in ("text", "vision", "micro_batching"))
_NAMES = {
    "ts.utils.util": {"CLEANUP_REGEX": f"{_TEXT}:MARKUP"},
    "ts.handler_utils.timer": {"timed": "marpack.worker.stages:timed"},
    "ts.handler_utils.micro_batching": {
        name: f"{_MICRO_BATCHING}:{name}" for name in ("MicroBatching", "WorkerThread", "HANDLER_METHODS")
    },
    "ts.handler_utils.text_utils": {name: f"{_TEXT}:{name}" for name in ("get_tokenizer", "ngrams_iterator")},
    "ts.handler_utils.hf_batch_streamer": {
        "TextIteratorStreamerBatch": "marpack.worker.handlers.batch_streamer:TextIteratorStreamerBatch"
    },
    "ts.torch_handler": {},
    "ts.torch_handler.base_handler": {"BaseHandler": "marpack.worker.handlers.base:BaseHandler"},
    "ts.torch_handler.vision_handler": {"VisionHandler": f"{_VISION}:VisionHandler"},
    "ts.torch_handler.image_classifier": {"ImageClassifier": f"{_VISION}:ImageClassifier"},
    "ts.torch_handler.image_segmenter": {"ImageSegmenter": f"{_VISION}:ImageSegmenter"},
    "ts.torch_handler.object_detector": {"ObjectDetector": f"{_VISION}:ObjectDetector"},
    "ts.torch_handler.densenet_handler": {"DenseNetHandler": "marpack.worker.handlers.base:DenseNetHandler"},
    "ts.torch_handler.text_handler": {"TextHandler": f"{_TEXT}:TextHandler"},
    "ts.torch_handler.text_classifier": {"TextClassifier": f"{_TEXT}:TextClassifier"},
    "ts.torch_handler.contractions": {"CONTRACTION_MAP": f"{_TEXT}:CONTRACTION_MAP"},
    "ts.torch_handler.unit_tests": {},
    "ts.torch_handler.unit_tests.test_utils": {},
    "ts.torch_handler.unit_tests.test_utils.mock_context": {"MockContext": "marpack.worker.handlers.base:MockContext"},
}
_ELSEWHERE = {
    "setup_ort_session": "marpack.worker.loaders.formats:open_session",
    "CONTRACTIONS_PATTERN": f"{_TEXT}:CONTRACTIONS_PATTERN",
}


def install(*, installed_torchserve: bool = False) -> None:
    """Make `import ts` work in this process, with the worker's names."""
    ts_modules.provide(_NAMES, _ELSEWHERE)
    ts_modules.install(installed_torchserve=installed_torchserve)
