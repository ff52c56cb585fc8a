"""Read a deployment of TorchServe: its models, settings and start line, from the files that describe it.

Dockerfiles, compose files, Kubernetes manifests and scripts all contain command lines, and name files by their paths on
another machine. marpack runs none of the commands. The file of a path is the one in the deployment's folder whose own
path has the same end.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import UsageError, convert_os_errors
from marpack.inspection.yaml_document import read_yaml
from marpack.project.load import read_text_file
from marpack.project.planning import Flags
from marpack.project.scaffold.template import templates
from marpack.serving.settings import ServerConfig, parse_properties, read_properties, reason_without_effect

_ARCHIVES = (".mar", ".model", ".tar.gz", ".tgz")
_STORES = ("model-store", "model_store")
_MAX_BYTES, _MAX_FILES, _MAX_COMMANDS, _MAX_VALUE = 1 << 18, 20_000, 2_000, 4096  # of a description
_ARGUMENT = r"(?:\"[^\"]*\"|'[^']*'|[^;&|<>\n\"'])"
_COMMANDS = re.compile(
    rf"""(?:(?<=[\s;&|(@=\-"'/])|^)(?:
      torchserve\s+(?P<start>-{_ARGUMENT}{{0,2000}}+)
    | torch-model-archiver\s+(?P<archiver>{_ARGUMENT}{{0,2000}}+)
    | pip3?\s+install\s+(?P<install>{_ARGUMENT}{{0,2000}}+)
    | (?<![^\n])FROM\s+(?P<image>[^\n]*)
    | (?<![^\n])ENV\s+(?P<env>{_ARGUMENT}{{0,2000}}+)
    | (?:cp|mv|COPY|ADD)\s+(?P<copy>{_ARGUMENT}{{0,2000}}+)
    | (?:echo|printf)\s+(?P<text>{_ARGUMENT}{{0,200}}+)>>?\s*(?P<file>[^\s;&|]+)
    | (?P<name>(?!ExecStart|command)[A-Za-z_]\w{{0,99}}+)(?:\+=|[ \t]*[:?]?=[ \t]*)
      (?P<value>"[^"\n]*"|'[^'\n]*'|[^\s;&|"']*)
    | (?P<script>[\w./-]{{1,200}}\.(?:sh|bash|conf)\b)
    )""",
    re.VERBOSE | re.MULTILINE,
)
_LIST = re.compile(r"^(\s*[A-Za-z]*(?: +--\S+)* *)\[(.*?)\]?\s*$", re.MULTILINE)  # of words: CMD ["torchserve"]
_COMMENT = re.compile(r"""^((?:"[^"\n]*"|'[^'\n]*'|[^'"#\n]|(?<=\S)#)*)(?<!\S)#.*$""", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^}]*)|[^}]*)\}|\(?(\w+)\)?)")
_SECRET = re.compile(
    r"pass|pwd|secret|token(?!_expiration|_auth)|credential|private|bearer|(?:key|auth)(?:$|_)", re.IGNORECASE
)
_VOLUME = ("source", "target")
_SECRET_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_VERSION = re.compile(r"torchserve[\w-]*(?::|==)(\d+)\.(\d+)(?:\.(\d+))?")
_NOT_EXPORTED = re.compile(
    r"PATH|HOME|LANG|TEMP|TS_CONFIG_FILE|LC_\w+|\w+_HOME|\w+_PATH|DEBIAN_FRONTEND|PYTHON\w+|PIP_\w+|DOCKER\w*"
)
_READ_KEYS = {  # of a service, a container and a predictor
    *("build", "volumes", "environment", "command", "entrypoint", "args", "name", "env"),
    *("pytorch", "model", "modelFormat", "protocolVersion"),
}
_FLAGS = {"-v": "version", "-r": "requirements_file", "-c": "config_file"}  # of torch-model-archiver
_FILE_FLAGS = ("serialized_file", "model_file", "handler", "extra_files", "requirements_file", "config_file")


class Outcome(StrEnum):
    """What becomes of a setting."""

    KEPT = "kept"
    CHANGED = "changed"
    NO_EFFECT = "no effect"
    DECISION = "needs a decision"


_MODEL_API = ("--enable-model-api", "--model-api-enabled")
_WITHOUT_TOKENS = ("--disable-token-auth", "--disable-token", "--dt", "disable_token_authorization")
Result = tuple[Outcome, str]  # what becomes of a setting, and why


@cache
def _results() -> dict[str, Result]:
    """Return the results of the settings that marpack knows."""
    table = read_yaml((templates() / "migrate" / "settings.yaml").read_text(encoding="utf-8")).value
    return {name: (Outcome(outcome), reason) for outcome, names in table.items() for name, reason in names.items()}


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
        "Name a model store, a config.properties, a Dockerfile, compose file or script with a torchserve --start line,"
        " a Kubernetes manifest, or a SageMaker model.tar.gz."
    )


class Deployment:
    """The facts of a deployment, collected from the file or folder that describes it."""

    def __init__(self, source: Path) -> None:
        """Read it. Raises NotDeploymentError, and UsageError for an unreadable file."""
        self._root = self._folder = source if source.is_dir() else source.parent
        self._reset()
        if not source.exists():
            raise NotDeploymentError("the file or folder does not exist", where=str(source))
        with convert_os_errors(NotDeploymentError, "it cannot be read", where=str(source)):
            if _is_archive(source):
                self.kind = "model archive"
                self.models.append(DeployedModel(source=source, file=source.name))
            else:
                paths = islice(_list_paths(self._root), _MAX_FILES)
                self._paths = sorted(paths, key=lambda path: (len(path.parts), path))
                self._read(source)
                if not self.kind:
                    raise NotDeploymentError("this is not a deployment of TorchServe", where=str(source))
                self._read_config()
                self.models += self._list_models()
        self._note_defaults()

    def _reset(self) -> None:
        """Forget a description that does not start TorchServe."""
        self.kind = ""
        self.models: list[DeployedModel] = []
        self.settings: list[Setting] = []
        self.config: dict[str, str] = {}  # of the new config.properties
        self.metrics: Path | None = None  # the file of metrics_config
        self.outside: list[str] = []  # archives outside the source
        self.options: list[str] = []  # of marpack serve
        self.environment: dict[str, str] = {}
        self._scripts: set[Path] = set()  # that were read
        self._copies: dict[PurePosixPath, str] = {}  # targets of copies and volumes → their sources
        self._volumes: list[Path] = []  # folders that may be outside the source
        self._texts: dict[str, str] = {}  # that commands write, by the names of files
        self._variables: dict[str, str] = {}
        self._built: dict[str, DeployedModel] = {}
        self._words: list[str] = []  # of --models, load_models or model_snapshot
        self._store, self._config = "model-store", ""
        self._has_tokens = True  # whether this version of TorchServe requires them by default

    # --- Files

    def _read(self, source: Path) -> None:
        """Read a description, or the first one of a folder that starts TorchServe."""
        readers = {
            r"(docker-)?compose.*\.ya?ml": self._read_yaml,
            r"(.*\.)?(docker|container)file([.-].*)?": self._read_dockerfile,
            r".*\.ya?ml": self._read_yaml,
            r".*\.(sh|bash|zsh|bat|ps1|service|conf|ini|mk)|makefile|procfile": self._read_script,
        }
        for pattern, read in readers.items():
            for path in self._paths if source.is_dir() else [source]:
                if re.fullmatch(pattern, path.name.lower()) and path.is_file() and not self.kind:
                    self._reset()
                    self._folder = path.parent
                    read(path)
        if source.suffix in {".properties", ".cfg", ".config"}:
            self.kind, self._config = "config.properties", source.name
        elif source.is_dir() and not self.kind:
            self._reset()
            config = next((path for path in self._paths if path.name == "config.properties"), None)
            self._folder = config.parent if config else source
            has_store = any(_archives_in(source / name) for name in (*_STORES, "."))
            self.kind = "config.properties" if config else "model store" if has_store else ""

    def _resolve(self, text: str) -> PurePosixPath:
        """Return the path from which a copy or volume makes a path, or the path itself."""
        wanted = _path(text)
        for place in (wanted, *wanted.parents[:-1]):
            source = next((each for target, each in self._copies.items() if _has_end(target, place)), None)
            if source is not None:
                return _path(source) / wanted.relative_to(place)
        return wanted

    def _find(self, text: str) -> Path | None:
        """Return the file or folder in the deployment whose path has the longest end in common with a path."""
        parts = self._resolve(text).parts
        named = [path for path in self._paths if path.name == parts[-1]] if parts else []
        named.sort(key=lambda path: not path.is_relative_to(self._folder))
        ends = (parts[start:] for start in range(len(parts)))
        return next((path for end in ends for path in named if path.parts[-len(end) :] == end), None)

    def _copy(self, words: list[str]) -> None:
        """Note the sources of a copy."""
        *sources, target = [word for word in words if not word.startswith("-")] or [""]
        for source in sources:
            name = PurePosixPath(source).name
            is_pattern, into = bool(set(name) & {*"*?["}), _path(target)
            is_folder = len(sources) > 1 or target.endswith(("/", ".")) or not into.suffix
            into = into / name if is_folder and not is_pattern and PurePosixPath(name).suffix else into
            if into.parts and into != _path(source):
                self._copies[into] = str(PurePosixPath(source).parent) if is_pattern else source

    # --- Descriptions

    def _read_yaml(self, path: Path) -> None:
        """Read the first service, container or predictor that runs TorchServe."""
        texts = re.split(r"^---\s*$", read_text_file(path, limit=_MAX_BYTES), flags=re.MULTILINE)
        nodes = [node for text in texts for node in _mappings(read_yaml(text).value)]
        maps = [each.get("data") for each in nodes if each.get("kind") == "ConfigMap"]
        words, dotenv = ("storageUri", "torchserve"), path.parent / ".env"
        given = _pairs(read_text_file(dotenv).splitlines()) if dotenv.is_file() and self._is_inside(dotenv) else []
        for node in sorted(nodes, key=lambda each: [word not in json.dumps(each, default=str) for word in words]):
            is_server = "torchserve" in f"{node.get('image')} {node.get('command')}"
            if self.kind and not (self.kind == "compose file" and is_server):
                continue
            if not self.kind:
                self._reset()
                self._texts = {name: text for each in maps for name, text in _pairs(each)}
                self._variables = {name: value for name, value in given if not _SECRET.search(name)}
            model = node.get("pytorch", node.get("model"))
            if isinstance(model, dict) and isinstance(model.get("storageUri"), str):
                self._read_predictor(path, node, model)
            elif "image" in node or "build" in node:
                self._read_container(path, node)

    def _read_predictor(self, path: Path, predictor: dict[str, Any], model: dict[str, Any]) -> None:  # Any: YAML
        """Read a predictor of KServe, whose storage is a folder beside the file."""
        form = model.get("modelFormat", {"name": "pytorch"})
        if not isinstance(form, dict) or form.get("name") != "pytorch":
            return
        uri = model["storageUri"]
        self._copies[_path("/mnt/models")] = uri.partition("://")[2]
        if not any(self._find(f"/mnt/models/{name}") for name in _STORES):
            what = f"the storage folder of {_shown(uri)} is not beside the file"
            hint = "Download it into this folder, with model-store/ in it."
            raise NotDeploymentError(what, where=str(path), hint=hint)
        self.kind = "KServe InferenceService"
        self._store, self._config = "/mnt/models/model-store", "/mnt/models/config/config.properties"
        version = str(model.get("protocolVersion", "v1"))
        envelope = "kservev2" if version == "v2" else "kserve"
        self.config["service_envelope"] = envelope  # the config file replaces it
        self._note(path.name, "protocolVersion", version)
        self._read_container(path, {**model, **predictor, "storageUri": uri})

    def _read_container(self, path: Path, container: dict[str, Any]) -> None:  # Any: YAML
        """Read a service of a compose file, or a container of Kubernetes."""
        build = container.get("build")
        build = build if isinstance(build, dict) else {"context": build or ""}
        dockerfile = path.parent / str(build.get("context", "")) / str(build.get("dockerfile", "Dockerfile"))
        self._variables |= {name: self._expand(value) for name, value in _pairs(build.get("args")) if value}
        if "build" in container and dockerfile.is_file():
            if not self._is_inside(dockerfile):
                what = f"the build context {build.get('context')} is outside the folder of the file"
                raise NotDeploymentError(what, where=str(path), hint="Migrate the folder that contains both.")
            self._read_dockerfile(dockerfile)
        for volume in _list(container.get("volumes")):
            given = volume if isinstance(volume, dict) else dict(zip(_VOLUME, str(volume).split(":"), strict=False))
            source, target = (str(given.get(key) or "") for key in _VOLUME)
            self._copies[_path(target)] = source
            self._volumes.append(path.parent / source)
        self._note_environment(path.name, _pairs(container.get("environment", container.get("env"))))
        for name, value in container.items():
            is_known = name in {"image", "env_file", "storageUri"}
            if name not in _READ_KEYS:
                text = ", ".join(map(str, _list(value))) if is_known else ""
                self._note(path.name, str(name), text, "" if is_known else "(platform)")
        self._follow(path.name, *(container.get(key) for key in ("entrypoint", "command", "args")))
        if "torchserve" in str(container.get("image")) or self.kind in {"start line", "Dockerfile"}:
            self.kind = "Kubernetes manifest" if "containerPort" in str(container) else "compose file"

    def _read_dockerfile(self, path: Path) -> None:
        text = _join_lines(read_text_file(path, limit=_MAX_BYTES))
        text = re.sub(r"^\s*\w+ ", lambda found: found[0].strip().upper() + " ", text, flags=re.MULTILINE)
        text = re.sub(r"^(ENTRYPOINT .*)\n+CMD ", r"\1 ", text, flags=re.MULTILINE)
        if "torchserve" in text:
            self._follow(path.name, text)
            self.kind = "Dockerfile"

    def _read_script(self, path: Path) -> None:
        """Read a script, once: it may call itself."""
        if path not in self._scripts:
            self._scripts.add(path)
            self._follow(path.name, read_text_file(path, limit=_MAX_BYTES))
            self.kind = "start script" if self.kind == "start line" else self.kind

    def _note_environment(self, origin: str, pairs: Iterable[tuple[str, str]]) -> None:
        for name, value in pairs:
            if not value or _SECRET.search(name) or _SECRET_ADDRESS.search(value):
                self._note(origin, name, "", "(secret)" if value else "(unknown)")
                continue
            is_exported = re.fullmatch(r"[A-Za-z_]\w*", name) and not _NOT_EXPORTED.fullmatch(name)
            self._note(origin, name, value, "(variable)" if is_exported else "(image)")
            self._variables[name] = value
            self.environment |= {name: value} if is_exported else {}

    # --- Commands

    def _expand(self, text: str) -> str:
        """Return a text with the values of the known variables; one that becomes too long stays as it is."""
        expanded = _VARIABLE.sub(lambda found: self._variables.get(found[1] or found[3], found[2] or found[0]), text)
        return expanded if len(expanded) <= _MAX_VALUE else text

    def _follow(self, origin: str, *parts: object) -> None:
        """Read the commands of a script, or of the command of a container."""
        text = _join_lines(" ".join(" ".join(map(str, _list(part))) for part in parts))
        for found in islice(_COMMANDS.finditer(text), _MAX_COMMANDS):
            kind, text = found.lastgroup, self._expand(found[found.lastgroup or 0])
            match kind:
                case "start":
                    self._read_start(origin, text)
                case "archiver":
                    self._read_archiver(_split(text))
                case "install" | "image":
                    self._note(origin, "pip install" if kind == "install" else "FROM", text)
                case "env":
                    words = _split(text)
                    self._note_environment(origin, _pairs(words if "=" in words[0] else ["=".join(words[:2])]))
                case "copy":
                    self._copy(_split(text))
                case "file":
                    name, written = PurePosixPath(text).name.strip("\"'"), " ".join(_split(found["text"]))
                    written = re.sub(r"^(-\w+ )+", "", written).replace("\\n", "\n")
                    self._texts[name] = f"{self._texts.get(name, '')}{self._expand(written)}\n"
                case "value" if not _SECRET.search(found["name"]) and "$(" not in text:
                    self._variables[found["name"]] = text.strip("\"'")
                case "script" if (script := self._find(text)) is not None and script.is_file():
                    self._read_script(script)

    def _read_archiver(self, words: list[str]) -> None:
        """Read the flags of an archive that the deployment builds."""
        given = _options(words)
        flags = {_FLAGS.get(each, each[2:].replace("-", "_")): " ".join(values) for each, values in given.items()}
        flags = {name: flags[name] for name in Flags.__struct_fields__ if flags.get(name) and name != "export_path"}
        missing = ""
        for name in [each for each in _FILE_FLAGS if each in flags]:
            if name != "handler" or flags[name].endswith(".py"):
                places = {each: self._find(each) for each in re.split(r"[,\s]+", flags[name]) if each}
                missing = missing or next((each for each, place in places.items() if place is None), "")
                flags[name] = ",".join(map(str, places.values()))
        if "model_name" in flags:
            file = f"{flags['model_name']}.mar"
            self._built[file] = DeployedModel(source=None, flags=flags, missing=missing, file=file)

    def _read_start(self, origin: str, text: str) -> None:
        words = " ".join(_split(text)).split()
        given = _options(words[len(words) - [*reversed(words), "torchserve"].index("torchserve") :])
        if not given.keys() & _results().keys():
            return  # it stops the server, or belongs to another command
        self.kind = self.kind or "start line"
        for name, values in given.items():
            result = name if name in _results() else "(option)"
            if name == "--ts-config" and values:
                self._config = values[0]
                if self._find(values[0]) is None and PurePosixPath(values[0]).name not in self._texts:
                    result = "(missing)"
            elif name == "--model-store" and values:
                self._store = values[0]
            elif name == "--models":
                self._words += values
            elif name in _MODEL_API:
                self.options.append("--enable-model-api")
            self._note(origin, name, " ".join(values), result)

    # --- config.properties

    def _read_config(self) -> None:
        """Read the settings of the config file, if there is one: those with an effect become the new file."""
        given = self._variables.get("TS_CONFIG_FILE", self._config)
        place = _path(given or "config.properties")
        found = self._find(str(place))
        is_named = given or self._resolve(str(place)) != place
        is_read = found is not None and found.is_file() and (is_named or found.parent in (self._root, self._folder))
        texts = read_properties(found) if found is not None and is_read else {}
        texts |= parse_properties(self._texts.get(place.name, "").encode("latin-1", "replace"))
        for key, text in texts.items():
            result, kept = self._judge_key(key, text)
            if kept is not None:
                self.config[key] = kept
            self._note(place.name, key, "" if _SECRET.search(key) else text, result)
        snapshot = ServerConfig.parse_value("model_snapshot", texts.get("model_snapshot", '{"models": {}}'))
        if snapshot:
            self.config["models"] = json.dumps(json.loads(texts["model_snapshot"])["models"])
        versions = [f"{name}={each.mar_name}" for name, known in snapshot.items() for each in known.values()]
        self._words = self._words or versions or [texts.get("load_models", "")]
        if "model_store" in texts:
            self._volumes.append(self._root / texts["model_store"].strip())
            self._store = texts["model_store"] if self._store == "model-store" else self._store
        if self.config.get("disable_token_authorization", "").strip().lower() == "false":
            self.options += ["--token", "key_file.json"]  # new keys: those of the deployment are not copied

    def _judge_key(self, key: str, text: str) -> tuple[Result | str, str | None]:
        """Return the result of a key, which may be a name in the table, and its value in the new file."""
        is_off = text.strip().lower() == "false"
        if (ignored := reason_without_effect(key)) is not None:
            return (Outcome.NO_EFFECT, ignored), None
        if _SECRET.search(key) or _SECRET_ADDRESS.search(text):
            return "(secret key)", None
        if key in {"model_store", "load_models", "model_snapshot"}:
            return key, None
        if key in {"allowed_urls", "enable_grpc_ssl"} and not is_off:
            return key, text
        if key.endswith("_address") and text.strip().lower().startswith("https:"):
            port = re.search(r":(\d+)/?\s*$", text)
            return "(https)", f"http://127.0.0.1:{port[1] if port else 8080}"
        if key == "metrics_config":
            found = self._find(text)
            self.metrics = found if found is not None and found.is_file() else None
            return ("(missing)", None) if self.metrics is None else (key, "metrics.yaml")
        if variable := re.search(r"\$\$[^$]{2,}\$\$", text):
            return (Outcome.KEPT, f"set {variable[0].strip('$')} in the environment"), text
        try:
            value = ServerConfig.parse_value(key, text)
        except UsageError as error:
            return (Outcome.DECISION, f"left out: {error.what}"), None
        is_changed = key == "management_address" and not value.is_loopback
        return key if is_changed else (Outcome.KEPT, ""), text

    def _note_defaults(self) -> None:
        """Note the defaults of TorchServe that differ from those of marpack serve."""
        given = {each.name for each in self.settings}
        for name in ("default_workers_per_model", "grpc_inference_port"):
            if name not in given:
                self._note("default", name, "")
        if self._has_tokens and not given & {*_WITHOUT_TOKENS}:
            self._note("default", "disable_token_authorization", "")
        if any(not each.at_start for each in self.models):
            self._note("store", "models", "")

    # --- Models

    def _list_models(self) -> Iterator[DeployedModel]:
        """Yield the models that the deployment loads at its start, then the others of its store."""
        stored = self._list_store()
        words = dict.fromkeys(filter(None, re.split(r"[,\s]+", " ".join(self._words))))
        unknown = [word for word in words if "$" in word.rpartition("=")[2]]
        if unknown:
            self._note("store", "models", unknown[0], "(models)")
        named: set[str] = set()
        for word in (each for each in words if each not in unknown):
            name, _, file = word.rpartition("=")
            if word.lower() == "all":
                yield from stored.values()
                named.update(stored)
                continue
            own = self._resolve(file).name
            found = stored.get(PurePosixPath(file).name) or stored.get(own) or self._model_of(self._find(file), file)
            yield replace(found, name=name or None)
            named.add(found.file)
        for file, model in stored.items():
            if file not in named:
                yield replace(model, at_start=not named)

    def _list_store(self) -> dict[str, DeployedModel]:
        """Return the archives and model folders of the store, and those that the deployment builds, by name."""
        store = _path(self._store)
        copied = [self._find(source) for target, source in self._copies.items() if _has_end(target.parent, store)]
        found = [path for path in copied if path is not None and _is_archive(path)]
        named = [each for each in self._volumes if each.name == self._resolve(self._store).name]
        others = (path.parent for path in self._paths if path.suffix == ".mar")
        usual = (folder / name for folder in (self._folder, self._root) for name in (*_STORES, "."))
        folders = [self._find(self._store), *named, *usual, *others]
        found = found or next(filter(None, (_archives_in(each) for each in folders if each is not None)), [])
        return self._built | {path.name: self._model_of(path, path.name) for path in found}

    def _model_of(self, path: Path | None, file: str) -> DeployedModel:
        """Return the model of an archive, which is in the deployment's folder or in a volume of it."""
        if path is None or self._is_inside(path):
            return DeployedModel(source=path, file=_shown(file) if path is None else path.name)
        if path.parent not in self._volumes or path.resolve().parent != path.parent.resolve():
            return DeployedModel(source=None, file=file, missing=f"the target of the link {file}")
        self.outside.append(str(path))
        return DeployedModel(source=path, file=file)

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._root.resolve())

    def _note(self, origin: str, name: str, value: str, result: Result | str = "") -> None:
        """Note a setting, and its result or the name of the result."""
        outcome, reason = _results()[result or name] if isinstance(result, str) else result
        for version in _VERSION.findall(value):
            self._has_tokens = tuple(int(number or 0) for number in version) >= (0, 11, 1)
        setting = Setting(origin=origin, name=name, value=_shown(value), outcome=outcome, reason=reason)
        self.settings.append(setting)


def _is_archive(path: Path) -> bool:
    return path.name.endswith(_ARCHIVES) or (path / "MAR-INF").is_dir() or (path / "code" / "inference.py").is_file()


def _archives_in(folder: Path) -> list[Path]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.name[0] != "." and _is_archive(path)]


def _list_paths(root: Path) -> Iterator[Path]:
    """Yield the files and folders below a folder, except hidden ones and links out of it."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name[0] != "."]
        for name in sorted((*folders, *files)):
            path = Path(folder) / name
            if name[0] != "." and (not path.is_symlink() or path.resolve().is_relative_to(root.resolve())):
                yield path


def _path(text: str) -> PurePosixPath:
    """Return a path without a root and without steps up."""
    return PurePosixPath(*(part for part in PurePosixPath(text.strip()).parts if part not in {"/", ".."}))


def _has_end(path: PurePosixPath, end: PurePosixPath) -> bool:
    """Return whether the shorter of two paths is the end of the other."""
    length = min(len(path.parts), len(end.parts))
    return length > 0 and path.parts[-length:] == end.parts[-length:]


def _join_lines(text: str) -> str:
    """Return a script without comments, with continued lines on one line, and here-documents as echo commands."""
    lines, end, target = list[str](), "", ""
    text = re.sub(r"\\[ \t]*\r?\n", " ", _COMMENT.sub(r"\1", text))
    for line in _LIST.sub(lambda found: found[1] + re.sub(r"[,\"']+", " ", found[2]), text).splitlines():
        begun = re.search(r"<<-?\s*['\"]?([A-Za-z_]\w*)", line)
        if end and line.strip() == end:
            end = ""
        elif end:
            lines.append(f"echo {shlex.quote(line)} {target}")
        elif begun:
            end, target = begun[1], " ".join(re.findall(r">+ *[^<> ]+", line))
        else:
            lines.append(line)
    return "\n".join(lines)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text) or [""]
    except ValueError:  # an open quotation mark
        return text.split() or [""]


def _options(words: list[str]) -> dict[str, list[str]]:
    """Return the values of each option of a command."""
    values: dict[str, list[str]] = {}
    name = ""
    for word in words:
        option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        name = option or name
        values.setdefault(name, []).extend([value] if equals or not option else [])
    return values


def _mappings(value: Any) -> Iterator[dict[str, Any]]:  # Any: YAML
    """Yield the mappings of a YAML value, the outer ones first."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _mappings(each)


def _list(value: Any) -> list[Any]:  # Any: YAML
    return value if isinstance(value, list) else [] if value is None else [value]


def _pairs(value: Any) -> list[tuple[str, str]]:  # Any: YAML
    """Return the variables of an environment: a mapping, a list of NAME=VALUE, or a list of names and values."""
    if isinstance(value, dict):
        return [(str(name), "" if each is None else str(each)) for name, each in value.items()]
    dicts = [each if isinstance(each, dict) else {"name": str(each)} for each in _list(value)]
    texts = ["=".join(str(each[key]) for key in ("name", "value") if key in each) for each in dicts]
    return [(name, text) for name, _, text in (each.partition("=") for each in texts)]


def _shown(text: str) -> str:
    """Return a value without user and password."""
    return _SECRET_ADDRESS.sub("…@", text.strip())
