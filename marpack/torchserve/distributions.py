"""Which distribution provides which import: by what is installed here, else by what people install."""

from collections.abc import Iterable
from functools import cache

# import name → distributions; where neither the same nor a spelling of it.
_PROVIDERS = {
    "absl": "absl-py", "attr": "attrs", "azure": "azure-storage-blob azure-core azure-identity",
    "bidi": "python-bidi", "Bio": "biopython", "bs4": "beautifulsoup4", "cairo": "pycairo", "cld2": "pycld2",
    "clip": "openai-clip clip-anytorch", "Crypto": "pycryptodome pycrypto",
    "cv2": "opencv-python opencv-python-headless opencv-contrib-python opencv-contrib-python-headless",
    "dateutil": "python-dateutil", "docx": "python-docx", "dotenv": "python-dotenv",
    "faiss": "faiss-cpu faiss-gpu faiss", "ffmpeg": "ffmpeg-python", "fitz": "pymupdf", "flash_attn": "flash-attn",
    "gi": "pygobject", "git": "gitpython",
    "google": "protobuf google-api-core google-cloud-storage google-auth googleapis-common-protos",
    "googleapiclient": "google-api-python-client", "groundingdino": "groundingdino-py", "grpc": "grpcio",
    "grpc_tools": "grpcio-tools", "hydra": "hydra-core", "igraph": "igraph python-igraph",
    "imblearn": "imbalanced-learn", "IPython": "ipython", "jose": "python-jose", "jwt": "pyjwt",
    "kafka": "kafka-python kafka-python-ng", "lavis": "salesforce-lavis", "ldap": "python-ldap",
    "Levenshtein": "levenshtein python-levenshtein", "lightning": "lightning pytorch-lightning",
    "llama_cpp": "llama-cpp-python", "lru": "lru-dict", "magic": "python-magic", "MeCab": "mecab-python3",
    "memcache": "python-memcached", "mii": "deepspeed-mii", "mmcv": "mmcv mmcv-full mmcv-lite",
    "multipart": "python-multipart", "MySQLdb": "mysqlclient", "nacl": "pynacl",
    "nvidia": "nvidia-dali-cuda110 nvidia-dali-cuda120 nvidia-dali",
    "onnxruntime": "onnxruntime onnxruntime-gpu onnxruntime-openvino onnxruntime-directml",
    "open_clip": "open-clip-torch", "opencc": "opencc opencc-python-reimplemented", "OpenSSL": "pyopenssl",
    "osgeo": "gdal", "paddle": "paddlepaddle paddlepaddle-gpu", "PIL": "pillow pillow-simd",
    "pkg_resources": "setuptools", "pptx": "python-pptx", "psycopg2": "psycopg2 psycopg2-binary",
    "pyannote": "pyannote-audio pyannote-core", "pycocotools": "pycocotools pycocotools-windows",
    "pydantic_core": "pydantic", "pynvml": "pynvml nvidia-ml-py", "pythoncom": "pywin32",
    "pytorch_lightning": "pytorch-lightning lightning", "pywt": "pywavelets", "pyximport": "cython",
    "rdkit": "rdkit rdkit-pypi", "rest_framework": "djangorestframework", "ruamel": "ruamel-yaml", "sam2": "sam-2",
    "segment_anything": "segment-anything segment-anything-py", "serial": "pyserial", "skimage": "scikit-image",
    "sklearn": "scikit-learn sklearn", "slugify": "python-slugify", "snappy": "python-snappy",
    "socketio": "python-socketio", "soundfile": "soundfile pysoundfile", "speech_recognition": "speechrecognition",
    "tensorflow": "tensorflow tensorflow-cpu tensorflow-gpu tf-nightly", "tensorrt": "tensorrt nvidia-tensorrt",
    "tlz": "toolz", "TTS": "tts coqui-tts", "turbojpeg": "pyturbojpeg", "umap": "umap-learn", "usb": "pyusb",
    "websocket": "websocket-client", "whisper": "openai-whisper", "wx": "wxpython", "xdist": "pytest-xdist",
    "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
# Those that are imported by their own names, and that handlers import most often.
_NAMESAKES = """
    accelerate aiohttp albumentations annoy av bentoml bitsandbytes boto3 botocore catboost cupy datasets decord
    deepspeed diffusers easyocr einops fastapi fasttext flask ftfy gensim gradio h5py hnswlib huggingface_hub
    imagehash imageio imgaug ipywidgets jieba joblib keras kornia langchain langdetect librosa lightgbm llama_index
    lxml mlflow mmdet mmengine mmpose monai nibabel nltk numba onnx openai openvino optimum orjson pandas paramiko
    peft pika plotly polars prometheus_client psycopg pyarrow pyctcdecode pydantic pydicom pydub pymongo pypinyin
    pytesseract rapidfuzz redis regex sacremoses safetensors scipy seaborn segmentation_models_pytorch
    sentence_transformers sentencepiece sentry_sdk shap shapely simplejson soxr spacy sqlalchemy statsmodels streamlit
    supervision sympy tabulate tensorboard tensorflow_hub tiktoken timm tokenizers torch_geometric torch_scatter
    torchdata torchmetrics torchtext transformers trimesh tritonclient trl ujson ultralytics unidecode uvicorn vllm
    wandb webdataset xformers xgboost zstandard
    """
# What people call their own files, and no distribution they would install is imported by.
_HOMELY = """
    model models my_model net nets network networks util utils helper helpers common config configs cfg constants
    preprocess preprocessing preprocessor postprocess postprocessing postprocessor transform inference predict
    predictor dataset dataloader data_utils model_utils handler handler_utils base_model layers modules architecture
    backbone encoder decoder losses train training settings src lib
    """
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
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - looking at most archives asks for no name

    return canonicalize_name(name)


def providers(top: str) -> frozenset[str]:
    """Return the distributions that may provide a top-level import, in canonical spelling."""
    return frozenset({canonical(top), *_PROVIDERS.get(top, "").split()})


def provided(top: str, required: Iterable[str]) -> bool:
    """Say whether one of the required distributions (canonical names) provides, or always brings, an import."""
    names = set(required)
    if names & providers(top) or any(top in _BRINGS.get(name, "").split() for name in names):
        return True
    return any(top in _imports_of(name) for name in names)


@cache
def _imports_of(name: str) -> frozenset[str]:
    """Return the top-level imports of a distribution, where it is installed here."""
    from importlib import metadata  # noqa: PLC0415 - most archives need no more than the tables

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return frozenset()
    declared = (found.read_text("top_level.txt") or "").split()
    files = (file for file in found.files or () if file.suffix == ".py")
    return frozenset(declared or (file.parts[0].removesuffix(".py") for file in files))


def is_known(top: str) -> bool:
    """Say whether an import is, for all we know, not one of the author's own files."""
    return top in _PROVIDERS or top in _NAMESAKES.split()


def is_homely(top: str) -> bool:
    """Say whether an import must be one of the author's own files."""
    return top in _HOMELY.split()


def usual_provider(top: str) -> str:
    """Return what one most likely has to install for an import: what has it here, if anything has."""
    listed = _PROVIDERS.get(top)
    if listed is None and not is_known(top) and _is_installed(top):
        from importlib import metadata  # noqa: PLC0415 - it reads all that is installed

        listed = " ".join(map(canonical, metadata.packages_distributions().get(top, ())))
    return (listed or canonical(top)).split()[0]


def _is_installed(top: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - as above

    try:
        return find_spec(top) is not None
    except (ImportError, ValueError):  # a module that is half there
        return False


def namesake(top: str, required: Iterable[str]) -> str | None:
    """Return the required distribution that an import may come from, by its name alone: `lru` from `lru-dict`."""
    name = canonical(top)
    return next((each for each in sorted(required) if each.startswith(f"{name}-") or each.endswith(f"-{name}")), None)
