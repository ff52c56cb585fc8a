"""Make pictures/reference.json: what torchvision makes of each picture. Run where torchvision is installed."""

import hashlib
import json
from pathlib import Path

import torch
from PIL import Image

REFUSALS = (OSError, RuntimeError, TypeError, ValueError, Image.DecompressionBombError)
FOLDER = Path(__file__).parent / "pictures"


def chains(T):
    """Return the steps to compare, by name; T is torchvision.transforms, or marpack's module of the same classes."""
    normalize = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    return {
        "to_tensor": T.Compose([T.ToTensor()]),
        "resize": T.Compose([T.Resize(73), T.ToTensor()]),
        "crop": T.Compose([T.CenterCrop(101), T.ToTensor()]),
        "pad": T.Compose([T.CenterCrop(212), T.ToTensor()]),
        "imagenet": T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), normalize]),
        "gray": T.Compose([T.Resize(64), T.ToTensor(), T.Normalize([0.1307], [0.3081])]),
    }


def digest(tensor):
    """Return dtype, shape and the SHA-256 of a tensor's bytes."""
    data = tensor.contiguous().numpy().tobytes()
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()}"


def pixels(picture):
    """Return the SHA-256 of a picture as decoded, which is the decoder's business and not the transforms'."""
    return f"{picture.mode} {hashlib.sha256(picture.tobytes()).hexdigest()}"


def outcome(chain, path):
    """Return a chain's result for a picture: a digest, or the class of what it raises."""
    with Image.open(path) as picture:
        try:
            return digest(chain(picture))
        except REFUSALS as error:
            return type(error).__name__


def reference(T):
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in {".json", ".md"}:
            continue
        try:
            with Image.open(path) as picture:
                entry = {"pixels": pixels(picture)}
        except REFUSALS as error:
            found[path.name] = {"pixels": type(error).__name__}
            continue
        found[path.name] = entry | {name: outcome(chain, path) for name, chain in chains(T).items()}
    return found


if __name__ == "__main__":
    import torchvision

    made = {
        "torchvision": torchvision.__version__,
        "torch": torch.__version__,
        "pictures": reference(torchvision.transforms),
    }
    (FOLDER / "reference.json").write_text(json.dumps(made, indent=1) + "\n")
