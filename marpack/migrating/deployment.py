"""Read a deployment of TorchServe: its models, its settings and its start line, from the files that describe it."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import UsageError, convert_os_errors
from marpack.inspection.yaml_document import MAX_BYTES, read_yaml
from marpack.project.load import read_text_file
from marpack.project.planning import Flags
from marpack.serving.settings import ServerConfig, read_properties, reason_without_effect

ARCHIVES = (".mar", ".model", ".tar.gz", ".tgz")
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_YAML = (".yaml", ".yml")
_CONFIGS = ("config.properties", "config/config.properties")
_STORES = ("model-store", "model_store")
_HOME = PurePosixPath("/home/model-server")  # the working folder of TorchServe's images
_KSERVE = PurePosixPath("/mnt/models")
_START = re.compile(r"\btorchserve\s+(-[^;&|\n]*)")
_ARCHIVER = re.compile(r"\btorch-model-archiver\s+(-[^;&|\n]*)")
_INSTALL = re.compile(r"\bpip3? install\s+([^;&|\n]*)")
_SECRET = re.compile(
    r"pass|pwd|secret|token(?!_expiration|_auth)|credential|private|bearer|(?:key|auth)(?:$|_)", re.IGNORECASE
)
_SECRET_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_VARIABLE = re.compile(r"\$\$[^$]{2,}\$\$")
_NOT_EXPORTED = re.compile(r"PATH|HOME|LANG|TEMP|LC_\w+|\w+_HOME|\w+_PATH|DEBIAN_FRONTEND|PYTHON\w+|PIP_\w+|DOCKER\w*")
_PLATFORM_KEYS = "it belongs to the platform; marpack export --to docker or --to kserve writes a new definition"
_READ_KEYS = {  # of a service, and of a predictor
    *("image", "build", "volumes", "environment", "env_file", "command", "entrypoint"),
    *("pytorch", "model", "modelFormat", "storageUri", "protocolVersion", "env"),
}
_REASONS = {  # options of torchserve without an effect → the reason
    "--start": "marpack serve starts in the foreground",
    "--foreground": "marpack serve starts in the foreground",
    "--ncs": "marpack serve writes no snapshots",
    "--no-config-snapshots": "marpack serve writes no snapshots",
    "--log-config": "use --log-format and --log-requests",
    "--workflow-store": "workflows are not supported; call their models one by one",
    "--cpp-log-config": "C++ workers are not supported",
    "--plugins-path": "plugins are not supported",
}
_KEPT = {  # options of torchserve → those of marpack serve
    "--enable-model-api": "--enable-model-api",
    "--model-api-enabled": "--enable-model-api",
    "--disable-token-auth": "",
    "--disable-token": "",
}
_ARCHIVER_FLAGS = {"-v": "version", "-r": "requirements_file", "-c": "config_file"}
_ARCHIVER_FILES = {"serialized_file", "model_file", "handler", "extra_files", "requirements_file", "config_file"}


class Outcome(StrEnum):
    """What becomes of a setting."""

    KEPT = "kept"
    CHANGED = "changed"
    NO_EFFECT = "no effect"
    DECISION = "needs a decision"


_MOVED = (Outcome.CHANGED, "marpack-serve.sh names the projects")
_SPECIAL = {  # keys of config.properties
    "model_store": _MOVED,
    "load_models": _MOVED,
    "model_snapshot": _MOVED,
    "allowed_urls": (Outcome.DECISION, "it has an effect only with --allow-remote-register; add this if you need it"),
    "enable_grpc_ssl": (Outcome.DECISION, "marpack does not serve TLS; end it in a proxy, and remove this line"),
}


class Setting(Struct, frozen=True, kw_only=True):
    """A setting of a deployment, and what becomes of it."""

    origin: str  # the file, or the kind of place
    name: str
    value: str = ""  # empty for secrets
    outcome: Outcome
    reason: str = ""


class DeployedModel(Struct, frozen=True, kw_only=True):
    """A model of the deployment."""

    source: Path | None  # its archive; None if it is missing, or if `flags` build it
    name: str | None = None  # as the start line names it; None: by its manifest
    flags: dict[str, str] = {}  # of torch-model-archiver, with local paths
    missing: str = ""  # a file of the flags that is not in the deployment's folder
    file: str = ""  # the archive's name in the deployment
    at_start: bool = True  # loaded at the start


class NotDeploymentError(UsageError):
    """The source is not a deployment that marpack recognizes."""

    code = "not-a-deployment"
    fix = (
        "Name a model store, a config.properties, a Dockerfile or compose file with a torchserve --start line, a KServe"
        " InferenceService, or a SageMaker model.tar.gz."
    )


class Deployment:
    """The facts of a deployment, collected from the file or folder that describes it."""

    def __init__(self, source: Path) -> None:
        """Read it. Raises NotDeploymentError, and UsageError for an unreadable file."""
        self.kind = ""
        self.models: tuple[DeployedModel, ...] = ()
        self.settings: list[Setting] = []
        self.config: dict[str, str] = {}  # of the new config.properties
        self.files: dict[str, Path] = {}  # to copy, by their new names
        self.options: list[str] = []  # of marpack serve
        self.environment: dict[str, str] = {}
        self._root = source if source.is_dir() else source.parent
        self._mounts: dict[PurePosixPath, Path] = {}  # paths in a container → here
        self._folder = _HOME  # the working folder there
        self._words: tuple[str, ...] = ()  # of --models, load_models or model_snapshot
        self._store: str | None = None
        self._config: Path | None = None
        self._built: list[DeployedModel] = []
        with convert_os_errors(NotDeploymentError, "it cannot be read", where=str(source)):
            self._read(source)
            self._read_config()
        self.models = tuple(self._list_models())

    # --- What the source is

    def _read(self, source: Path) -> None:
        name = source.name.lower()
        if not source.exists():
            raise NotDeploymentError("the file or folder does not exist", where=str(source))
        if source.is_dir() and not _is_model(source):
            self._read_folder(source)
        elif source.is_dir() or name.endswith(ARCHIVES):
            self.kind = "model archive"
            self._built = [DeployedModel(source=source, file=source.name)]
        elif name.endswith(".properties"):
            self.kind, self._config = "config.properties", source
        elif "dockerfile" in name:
            self._read_dockerfile(source)
        elif name.endswith(_YAML):
            self._read_yaml(source)
        elif name.endswith(".sh"):
            self._read_script(source)
        if not self.kind:
            raise NotDeploymentError("this is not a deployment of TorchServe", where=str(source))

    def _read_folder(self, folder: Path) -> None:
        """Read the first description in a folder that starts TorchServe, otherwise its config and its archives."""
        files = sorted(path for path in folder.iterdir() if path.is_file())
        described: list[tuple[Callable[[Path], None], list[Path]]] = [
            (self._read_yaml, [path for path in files if path.name in _COMPOSE]),
            (self._read_dockerfile, [path for path in files if "dockerfile" in path.name.lower()]),
            (self._read_yaml, [path for path in files if path.suffix in _YAML and path.name not in _COMPOSE]),
            (self._read_script, [path for path in files if path.suffix == ".sh"]),
        ]
        for read, paths in described:
            for path in paths:
                read(path)
                if self.kind:
                    return
        self._config = next((folder / name for name in _CONFIGS if (folder / name).is_file()), None)
        if self._config is not None:
            self.kind = "config.properties"
        elif _archives_in(folder) or any(_archives_in(folder / name) for name in _STORES):
            self.kind = "model store"

    # --- Containers

    def _read_yaml(self, path: Path) -> None:
        for text in re.split(r"^---\s*$", read_text_file(path, limit=MAX_BYTES), flags=re.MULTILINE):
            document = read_yaml(text)
            value = document.value
            if document.problem is not None or not isinstance(value, dict):
                continue
            if isinstance(value.get("services"), dict):
                services = [each for each in value["services"].values() if isinstance(each, dict)]
                found = next((each for each in services if "torchserve" in json.dumps(each, default=str)), None)
                if found or any("build" in each for each in services):
                    self._read_service(path, found or next(each for each in services if "build" in each))
            elif value.get("kind") == "InferenceService" and isinstance(value.get("spec"), dict):
                self._read_inference_service(path, value["spec"].get("predictor"))

    def _read_service(self, path: Path, service: dict[str, Any]) -> None:  # Any: YAML
        """Read a service of a compose file."""
        build = service.get("build")
        build = {"context": build} if isinstance(build, str) else build
        if isinstance(build, dict):
            context = self._root / str(build.get("context", "."))
            dockerfile = context / str(build.get("dockerfile", "Dockerfile"))
            if dockerfile.is_file():
                self._read_dockerfile(dockerfile, context)
        for volume in _list(service.get("volumes")):
            named = (
                volume
                if isinstance(volume, dict)
                else dict(zip(("source", "target"), str(volume).split(":"), strict=False))
            )
            if "source" in named and "target" in named:
                self._mounts[PurePosixPath(str(named["target"]))] = path.parent / str(named["source"])
        self._note_environment(path.name, _pairs(service.get("environment")))
        for file in _list(service.get("env_file")):
            reason = "it may hold secrets; export its variables where you start marpack serve"
            self._note(path.name, "env_file", str(file), Outcome.DECISION, reason)
        self._note_others(path.name, service)
        command = [*_words(service.get("entrypoint")), *_words(service.get("command"))]
        self._read_command(path.name, command)
        if command or "torchserve" in str(service.get("image", "")) or self.kind:
            self.kind = "compose file"

    def _read_inference_service(self, path: Path, predictor: Any) -> None:  # Any: YAML
        """Read a predictor of KServe, whose storage is a folder beside the file."""
        predictor = predictor if isinstance(predictor, dict) else {}
        model = predictor.get("pytorch") or predictor.get("model")
        form = model.get("modelFormat", {"name": "pytorch"}) if isinstance(model, dict) else None
        if not isinstance(model, dict) or not isinstance(form, dict) or form.get("name") != "pytorch":
            return
        self.kind = "KServe InferenceService"
        uri = str(model.get("storageUri", ""))
        tail = PurePosixPath(uri.partition("://")[2])
        places = [self._root / tail.name, self._root.joinpath(*tail.parts[1:]), self._root / "storage", self._root]
        storage = next((place for place in places if (place / "model-store").is_dir()), None)
        if storage is None:
            what = f"the storage folder of {_shown(uri) or 'the InferenceService'} is not beside the file"
            raise NotDeploymentError(
                what, where=str(path), hint="Download it into this folder, with model-store/ in it."
            )
        self._mounts[_KSERVE] = storage
        self._folder, self._store = _KSERVE, "/mnt/models/model-store"
        self._note(path.name, "storageUri", uri, Outcome.CHANGED, "the models are projects in this folder")
        self._config = next((storage / name for name in _CONFIGS if (storage / name).is_file()), None)
        envelope = "kservev2" if model.get("protocolVersion") == "v2" else "kserve"
        self.config["service_envelope"] = envelope  # the config file replaces it
        version = str(model.get("protocolVersion", "v1"))
        self._note(path.name, "protocolVersion", version, Outcome.KEPT, f"it becomes service_envelope={envelope}")
        self._note_environment(path.name, _pairs(model.get("env")))
        self._note_others(path.name, model | predictor)

    def _note_others(self, origin: str, mapping: dict[str, Any]) -> None:  # Any: YAML
        for name in mapping:
            if name not in _READ_KEYS:
                self._note(origin, str(name), "", Outcome.NO_EFFECT, _PLATFORM_KEYS)

    def _read_dockerfile(self, path: Path, context: Path | None = None) -> None:
        context = context or path.parent
        text = re.sub(r"^\s*#.*\n", "", read_text_file(path, limit=MAX_BYTES), flags=re.MULTILINE)
        commands: dict[str, str] = {}
        for line in re.sub(r"\\\s*\n", " ", text).splitlines():
            keyword, _, rest = line.strip().partition(" ")
            match keyword.upper():
                case "FROM":
                    reason = "run marpack serve in an image of your own, or use marpack export --to docker"
                    self._note(path.name, "FROM", rest.strip(), Outcome.CHANGED, reason)
                case "COPY" | "ADD":
                    self._mount_copies(path.name, context, _split(rest))
                case "ENV":
                    words = _split(rest)
                    pairs = words if "=" in words[0] else [f"{words[0]}={' '.join(words[1:])}"]
                    self._note_environment(path.name, (word.partition("=")[::2] for word in pairs))
                case "WORKDIR":
                    self._folder = self._folder / rest.strip()
                case "CMD" | "ENTRYPOINT":
                    commands[keyword.upper()] = rest
                case "RUN":
                    self._read_run(path.name, rest)
        started = [*_words(commands.get("ENTRYPOINT")), *_words(commands.get("CMD"))]
        if "torchserve" in text and (started or self._built or self._mounts):
            self.kind = "Dockerfile"
        self._read_command(path.name, started)

    def _mount_copies(self, origin: str, context: Path, words: list[str]) -> None:
        *sources, target = [word for word in words if not word.startswith("--")] or [""]
        if any(word.startswith("--from") for word in words):
            reason = "the files come from another image; copy them into the folder"
            self._note(origin, "COPY --from", " ".join(sources), Outcome.DECISION, reason)
            return
        inside = self._folder / target
        for pattern in sources:
            relative = pattern.lstrip("/") or "."
            if ".." in PurePosixPath(relative).parts:
                continue  # outside the context, which Docker refuses, and a pattern could name the whole disk
            found = sorted(context.glob(relative)) if set(relative) & {*"*?["} else [context / relative]
            for place in found:
                into = target.endswith(("/", ".")) or len(sources) > 1 or len(found) > 1
                self._mounts[inside / place.name if into and not place.is_dir() else inside] = place

    def _read_run(self, origin: str, line: str) -> None:
        """Read the packages and the archives that a RUN line makes."""
        for packages in _INSTALL.findall(line):
            reason = "add the packages that the handlers need to the requirements.txt of their projects"
            self._note(origin, "pip install", packages.strip(), Outcome.DECISION, reason)
        for text in _ARCHIVER.findall(line):
            words, flags, missing = _split(text), {}, ""
            for word, value in zip(words, [*words[1:], "-"], strict=True):
                name = _ARCHIVER_FLAGS.get(word, word[2:].replace("-", "_"))
                if name not in Flags.__struct_fields__ or name == "export_path" or value.startswith("-"):
                    continue
                flags[name] = value
                if name in _ARCHIVER_FILES and (name != "handler" or value.endswith(".py")):
                    places = [(each, self._locate_own(each)) for each in value.split(",")]
                    missing = missing or next((each for each, place in places if place is None), "")
                    flags[name] = ",".join(str(place) for _, place in places)
            model = DeployedModel(source=None, flags=flags, missing=missing, file=f"{flags.get('model_name')}.mar")
            self._built.append(model)

    def _read_script(self, path: Path) -> None:
        text = re.sub(r"\\\s*\n", " ", read_text_file(path, limit=MAX_BYTES))
        if _START.search(text):
            self.kind = self.kind or "start script"
            self._read_command(path.name, [text])

    def _read_command(self, origin: str, words: list[str]) -> None:
        """Read the start line of a command, also one in a script that the command runs."""
        text = shlex.join(words) if len(words) > 1 and words[0] == "torchserve" else " ".join(words)
        line = _START.search(text)
        if line is None:
            scripts = (self._locate(word) for word in words if word.endswith(".sh"))
            for script in scripts:
                if script is not None and script.is_file():
                    self._read_script(script)
            return
        self.kind = self.kind or "start line"
        self._read_start(origin, _split(line[1]))

    def _read_start(self, origin: str, words: list[str]) -> None:
        values: dict[str, list[str]] = {}
        name = ""
        for word in words:
            option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
            name = option or name
            values.setdefault(name, []).extend([value] if equals or not option else [])
        for name, given in values.items():
            value, reason, outcome = " ".join(given), "", Outcome.NO_EFFECT
            if name == "--ts-config" and given:
                self._config, outcome, reason = self._locate(given[0]), Outcome.CHANGED, "it becomes config.properties"
                if self._config is None:
                    outcome, reason = Outcome.DECISION, "the file is not in the deployment's folder"
            elif name == "--model-store" and given:
                self._store, outcome, reason = given[0], Outcome.CHANGED, "the models are projects in this folder"
            elif name == "--models":
                self._words, outcome, reason = tuple(given), Outcome.KEPT, "marpack serve loads the same models"
            elif name in _KEPT:
                self.options += [_KEPT[name]] if _KEPT[name] else []
                outcome, reason = Outcome.KEPT, "" if _KEPT[name] else "marpack serve requires tokens only with --token"
            else:
                reason = _REASONS.get(name, "marpack serve has no such option")
            self._note(origin, name, value, outcome, reason)

    def _note_environment(self, origin: str, pairs: Iterable[tuple[str, str]]) -> None:
        for name, value in pairs:
            if _SECRET.search(name) or _SECRET_ADDRESS.search(value):
                reason = "it may be a secret; export it where you start marpack serve"
                self._note(origin, name, "", Outcome.DECISION, reason)
            elif _NOT_EXPORTED.fullmatch(name) or not re.fullmatch(r"[A-Za-z_]\w*", name):
                self._note(origin, name, value, Outcome.NO_EFFECT, "it belongs to the image")
            else:
                self.environment[name] = value
                self._note(origin, name, value, Outcome.KEPT, "marpack-serve.sh exports it")

    # --- config.properties

    def _read_config(self) -> None:
        """Read the settings of the config file, if there is one: those with an effect become the new file."""
        path = self._config
        if path is None:
            return
        texts = read_properties(path)
        for key, text in texts.items():
            outcome, reason, kept = self._judge_key(key, text)
            if kept is not None:
                self.config[key] = kept
            self._note(path.name, key, "" if _SECRET.search(key) else text, outcome, reason)
        snapshot = ServerConfig.parse_value("model_snapshot", texts.get("model_snapshot", '{"models": {}}'))
        if snapshot:
            self.config["models"] = json.dumps(json.loads(texts["model_snapshot"])["models"])
        if not self._words:
            versions = ((name, each) for name, known in snapshot.items() for each in known.values())
            self._words = tuple(f"{name}={each.mar_name}" for name, each in versions)
        self._words = self._words or tuple(filter(None, [texts.get("load_models", "").strip()]))
        self._store = self._store or texts.get("model_store")
        if self.config.get("disable_token_authorization", "").strip().lower() == "false":
            self.options += ["--token", "key_file.json"]  # new keys: those of the deployment are not copied

    def _judge_key(self, key: str, text: str) -> tuple[Outcome, str, str | None]:
        """Return what becomes of a key, the reason, and its value in the new file."""
        if (ignored := reason_without_effect(key)) is not None:
            return Outcome.NO_EFFECT, ignored, None
        if _SECRET.search(key) or _SECRET_ADDRESS.search(text):
            return Outcome.DECISION, "the value holds a secret, so it is not copied; add it to config.properties", None
        if key in _SPECIAL and text.strip().lower() != "false":
            outcome, reason = _SPECIAL[key]
            return outcome, reason, text if outcome is Outcome.DECISION else None
        if key.endswith("_address") and text.strip().lower().startswith("https:"):
            port = re.search(r":(\d+)/?\s*$", text)
            reason = "marpack does not serve TLS: it listens on this machine only, and needs a proxy that ends TLS"
            return Outcome.DECISION, reason, f"http://127.0.0.1:{port[1] if port else 8080}"
        if key == "metrics_config":
            found = self._locate_own(text)
            if found is None or not found.is_file():
                return Outcome.DECISION, "the file is not in the deployment's folder", None
            self.files["metrics.yaml"] = found
            return Outcome.CHANGED, "the file is copied", "metrics.yaml"
        if variable := _VARIABLE.search(text):
            return Outcome.KEPT, f"set {variable[0].strip('$')} in the environment", text
        try:
            value = ServerConfig.parse_value(key, text)
        except UsageError as error:
            return Outcome.DECISION, f"left out: {error.what}", None
        if key == "management_address" and not value.is_loopback:
            return Outcome.CHANGED, "without --token, marpack serve listens only on this machine", text
        return Outcome.KEPT, "", text

    # --- Models

    def _list_models(self) -> Iterator[DeployedModel]:
        """Yield the models that the deployment loads at its start, then the others of its store."""
        stored = {each.file: each for each in self._built} | {
            path.name: DeployedModel(source=path, file=path.name) for path in self._stored()
        }
        named: set[str] = set()
        for word in filter(None, (piece.strip() for text in self._words for piece in text.split(","))):
            name, equals, file = word.partition("=")
            name, file = (name.strip(), file.strip()) if equals else ("", name.strip())
            bare = PurePosixPath(file).name
            if word.lower() == "all":
                yield from stored.values()
                named.update(stored)
                continue
            found = stored.get(bare, DeployedModel(source=None, file=_shown(file)))
            yield replace(found, name=name or None)
            named.add(bare)
        for file, model in stored.items():
            if file not in named:
                yield replace(model, at_start=not self._words)

    def _stored(self) -> Iterator[Path]:
        """Yield the archives and model folders of the store."""
        if self.kind == "model archive":
            return
        folder = self._locate(self._store) if self._store else None
        if folder is None or not folder.is_dir():
            inside = self._folder / (self._store or "")
            copied = [local for place, local in self._mounts.items() if self._store and place.parent == inside]
            yield from (path for path in copied if path.name.endswith(ARCHIVES) or _is_model(path))
            folders = [self._root / name for name in (*_STORES, ".")]
            folder = None if copied else next((each for each in folders if _archives_in(each)), None)
        yield from _archives_in(folder) if folder is not None else ()

    def _locate(self, text: str) -> Path | None:
        """Return the local file or folder of a path in the deployment, or None."""
        inside = self._folder / text.strip()
        for place in (inside, *inside.parents):
            if place in self._mounts and (found := self._mounts[place] / inside.relative_to(place)).exists():
                return found
        own = [self._root / text.strip(), self._root / inside.name]
        return next((path for path in own if path.exists()), None)

    def _locate_own(self, text: str) -> Path | None:
        """Return what `_locate` does if it is in the deployment's folder: other files are not copied."""
        found = self._locate(text)
        return found if found is not None and self._root.resolve() in found.resolve().parents else None

    def _note(self, origin: str, name: str, value: str, outcome: Outcome, reason: str) -> None:
        shown = _shown(value)
        self.settings.append(Setting(origin=origin, name=name, value=shown, outcome=outcome, reason=reason))


def _is_model(folder: Path) -> bool:
    return (folder / "MAR-INF").is_dir() or (folder / "code" / "inference.py").is_file()


def _archives_in(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
    return [path for path in paths if path.name.endswith(ARCHIVES) or (path.is_dir() and _is_model(path))]


def _shown(text: str) -> str:
    """Return a value without user and password."""
    return _SECRET_ADDRESS.sub("…@", text.strip())


def _list(value: Any) -> list[Any]:  # Any: YAML
    return value if isinstance(value, list) else [] if value is None else [value]


def _pairs(value: Any) -> list[tuple[str, str]]:  # Any: YAML
    """Return the variables of an environment: a mapping, a list of NAME=VALUE, or a list of names and values."""
    if isinstance(value, dict):
        return [(str(name), str(each)) for name, each in value.items()]
    pairs = []
    for each in _list(value):
        if isinstance(each, dict):
            pairs.append((str(each.get("name")), str(each.get("value", ""))))
        else:
            pairs.append(str(each).partition("=")[::2])
    return pairs


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text) or [""]
    except ValueError:  # an open quotation mark
        return text.split() or [""]


def _words(value: Any) -> list[str]:  # Any: YAML, or the text of a Dockerfile's instruction
    """Return the words of a command, which is a list, or a text that may be a JSON list."""
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    return [value] if isinstance(value, str) else [str(each) for each in _list(value)]
