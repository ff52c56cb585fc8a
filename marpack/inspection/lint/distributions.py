"""Which distribution on the package index provides which import, where the two names differ."""

from collections.abc import Iterable

# import name → distributions; where neither the same nor a spelling of it.
_PROVIDERS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "clip": "openai-clip clip-anytorch",
    "cv2": "opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless",
    "Crypto": "pycryptodome pycrypto",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu faiss-gpu faiss",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google": "protobuf google-api-core google-cloud-storage google-auth googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "imblearn": "imbalanced-learn",
    "IPython": "ipython",
    "jwt": "pyjwt",
    "Levenshtein": "levenshtein python-levenshtein",
    "lightning": "lightning pytorch-lightning",
    "magic": "python-magic",
    "mmcv": "mmcv mmcv-full mmcv-lite",
    "MySQLdb": "mysqlclient",
    "nacl": "pynacl",
    "nvidia": "nvidia-dali-cuda110 nvidia-dali-cuda120 nvidia-dali",
    "onnxruntime": "onnxruntime onnxruntime-gpu onnxruntime-openvino onnxruntime-directml",
    "OpenSSL": "pyopenssl",
    "osgeo": "gdal",
    "paddle": "paddlepaddle paddlepaddle-gpu",
    "PIL": "pillow pillow-simd",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2 psycopg2-binary",
    "pycocotools": "pycocotools pycocotools-windows",
    "pydantic_core": "pydantic",
    "pynvml": "pynvml nvidia-ml-py",
    "pythoncom": "pywin32",
    "pytorch_lightning": "pytorch-lightning lightning",
    "ruamel": "ruamel-yaml",
    "sam2": "sam-2",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn sklearn",
    "slugify": "python-slugify",
    "soundfile": "soundfile pysoundfile",
    "speech_recognition": "speechrecognition",
    "tensorflow": "tensorflow tensorflow-cpu tensorflow-gpu tf-nightly",
    "tensorrt": "tensorrt nvidia-tensorrt",
    "TTS": "tts coqui-tts",
    "websocket": "websocket-client",
    "whisper": "openai-whisper",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# distribution → imports that it always brings along through its own requirements.
_BRINGS = {
    "accelerate": "huggingface_hub safetensors",
    "datasets": "pandas pyarrow fsspec huggingface_hub dill multiprocess xxhash aiohttp",
    "diffusers": "huggingface_hub safetensors regex importlib_metadata",
    "easyocr": "cv2 scipy skimage bidi shapely pyclipper",
    "librosa": "scipy sklearn joblib numba soundfile audioread pooch soxr",
    "lightning": "torchmetrics lightning_utilities pytorch_lightning",
    "mmdet": "mmcv mmengine pycocotools scipy shapely terminaltables",
    "nltk": "regex click joblib",
    "onnxruntime": "google flatbuffers coloredlogs",
    "onnx": "google",
    "pytorch-lightning": "torchmetrics lightning_utilities",
    "scikit-image": "scipy imageio tifffile lazy_loader",
    "scikit-learn": "scipy joblib threadpoolctl",
    "segmentation-models-pytorch": "timm huggingface_hub safetensors",
    "sentence-transformers": "transformers sklearn scipy tokenizers huggingface_hub safetensors regex joblib",
    "seaborn": "pandas",
    "spacy": "thinc srsly catalogue wasabi typer pydantic",
    "timm": "huggingface_hub safetensors",
    "transformers": "tokenizers huggingface_hub safetensors regex",
    "ultralytics": "cv2 pandas scipy",
}


def canonical(name: str) -> str:
    """Return a distribution's name in the index's own spelling (PEP 503)."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def providers(top: str) -> frozenset[str]:
    """Return the distributions that may provide a top-level import, in canonical spelling."""
    return frozenset({canonical(top), *_PROVIDERS.get(top, "").split()})


def provided(top: str, required: Iterable[str]) -> bool:
    """Say whether one of the required distributions (canonical names) provides, or always brings, an import."""
    names = set(required)
    return bool(names & providers(top)) or any(top in _BRINGS.get(name, "").split() for name in names)


def usual_provider(top: str) -> str:
    """Return what one most likely has to install for an import."""
    return _PROVIDERS.get(top, canonical(top)).split()[0]
