"""Read a deployment of TorchServe: its models, settings and start line, from the files that describe it.

Dockerfiles, compose files, manifests and scripts contain command lines, which marpack does not run, and paths of
another machine. The file of such a path is the one in the deployment's folder whose path has the same end.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from marpack.errors import ProjectError, UsageError, convert_os_errors
from marpack.inspection.yaml_document import read_yaml
from marpack.project.load import read_text_file
from marpack.project.members import leads_out
from marpack.project.planning import Flags
from marpack.project.scaffold.template import templates
from marpack.serving.settings import ServerConfig, parse_properties, read_properties, reason_without_effect

_ARCHIVES = (".mar", ".model", ".tar.gz", ".tgz")
_MAX_BYTES, _MAX_FILES, _MAX_COMMANDS, _MAX_VALUE = 1 << 18, 20_000, 2_000, 4096  # of a description
_MAX_SERVERS, _MAX_EXPANDED = 20, 1 << 23  # of a YAML file: containers, and characters with those of aliases
_ARGUMENT = r"(?:\"[^\"]*\"|'[^']*'|(?!\s\d>)[^;&|<>\n\"'])"
_COMMANDS = re.compile(
    rf"""(?:(?<=[\s;&|(@=\-"'/])|^)(?:
      (?P<command>torchserve(?=\s+-)|torch-model-archiver|pip3?\s+install|^FROM|^ENV|COPY|ADD|cp|mv)\s+
      (?P<words>{_ARGUMENT}{{0,2000}}+)
    | (?:echo|printf)\s+(?P<text>{_ARGUMENT}{{0,200}}+)>>?\s*(?P<file>[^\s;&|]+)
    | (?P<name>(?!ExecStart|command|args|cmd)[A-Za-z_]\w{{0,99}}+)(?:\+=|[ \t]*[:?]?=[ \t]*)
      (?P<value>"[^"\n]*"|'[^'\n]*'|[^\s;&|"']*)
    | (?P<script>[\w./-]{{1,200}}\.(?:sh|bash|conf)\b)
    )""",
    re.VERBOSE | re.MULTILINE,
)
_COMMENT = re.compile(r"""^((?:"[^"\n]*"|'[^'\n]*'|[^'"#\n]|(?<=\S)#)*)(?<!\S)#.*$""", re.MULTILINE)
_LIST = re.compile(r"^([A-Za-z]*(?: +--\S+)* *(?:= *)?)\[(.*?)\]?$", re.MULTILINE)  # of words: CMD ["torchserve"]
_HERE = re.compile(r"^[^<>\n]*+(.*?)<<-?\s*['\"]?([A-Za-z_]\w*+)[^>\n]*+(.*+)\n((?:.*+\n)*?)(?:\2$|\Z)", re.MULTILINE)
_OPTION = re.compile(r"(?<!\S)(-[^\s=]+)=?((?:(?!\s-).)*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=]([^}]*)|[^}]*)\}|\(?(\w+)\)?)")
_SECRET = re.compile(r"(?i)pass|pwd|secret|token(?!_expiration|_auth)|credential|private|bearer|(?:key|auth)(?:$|_)")
_SECRET_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_VERSION = re.compile(r"torchserve[\w-]*(?::|==)(\d+)\.(\d+)(?:\.(\d+))?")
_NOT_EXPORTED = re.compile(r"(\w+_)?(PATH|HOME)|LANG|TEMP|TS_CONFIG_FILE|(LC_|DEBIAN_|PYTHON|PIP_|DOCKER)\w*")
_READ_KEYS = re.compile(r"build|volumes|environment|command|entrypoint|args|name|env|pytorch|model|modelFormat")
_FLAGS = {"-v": "version", "-r": "requirements_file", "-c": "config_file"}  # of torch-model-archiver
Outcome = Literal["kept", "changed", "no effect", "needs a decision"]


@cache
def _results() -> dict[str, tuple[Outcome, str]]:
    """Return what becomes of the settings that marpack knows, and why."""
    table = read_yaml((templates() / "migrate" / "settings.yaml").read_text(encoding="utf-8")).value
    return {name: (outcome, reason) for outcome, names in table.items() for name, reason in names.items()}


class Setting(Struct, frozen=True, kw_only=True):
    """A setting of a deployment, and what becomes of it."""

    origin: str  # the file, or the kind of place
    name: str
    value: str = ""  # empty for secrets
    outcome: Outcome
    reason: str = ""


class DeployedModel(Struct, frozen=True, kw_only=True):
    """A model of the deployment."""

    source: Path | None = None  # its archive; None if it is missing, or if `flags` build it
    name: str | None = None  # as the start line names it; None: by its manifest
    flags: dict[str, str] = {}  # of torch-model-archiver, with local paths
    missing: str = ""  # the archive or a file of the flags, if it is not in the deployment's folder
    file: str  # the archive's name in the deployment
    at_start: bool = True  # loaded at the start


class NotDeploymentError(UsageError):
    """The source is not a deployment that marpack recognizes."""

    code = "not-a-deployment"
    fix = "Name a model store, config.properties, Dockerfile, compose file, manifest, start script or model.tar.gz."


class Deployment:
    """The facts of a deployment, collected from the file or folder that describes it."""

    def __init__(self, source: Path) -> None:
        """Read it. Raises NotDeploymentError, and UsageError for an unreadable file."""
        self._root = source if source.is_dir() else source.parent
        self._reset(self._root)
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
        self._note_defaults()

    def _reset(self, folder: Path) -> None:
        """Forget a description that does not start TorchServe, before one in this folder is read."""
        self.kind, self._folder, self._store, self._config = "", folder, "", "config.properties"
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

    def _read(self, source: Path) -> None:
        """Read a description, or the first one of a folder that starts TorchServe."""
        readers = {
            r"(docker-)?compose.*\.ya?ml": self._read_yaml,
            r"(.*\.)?(docker|container)file([.-].*)?": self._read_script,
            r".*\.(ya?ml|json)": self._read_yaml,
            r".*\.(sh|bash|zsh|bat|cmd|ps1|service|conf|ini|mk)|makefile|procfile|justfile": self._read_script,
            rf".*\.(ya?ml|toml|tf|hcl|nomad{'' if source.is_dir() else '|md|py'})": self._read_script,
        }
        ignored = (ProjectError,) if source.is_dir() else ()  # a folder also has files of other kinds
        for pattern, read in readers.items():
            for path in self._paths if source.is_dir() else [source]:
                if re.fullmatch(pattern, path.name.lower()) and path.is_file() and not self.kind:
                    self._reset(path.parent)
                    with suppress(*ignored):
                        read(path)
        if not self.kind:
            self._reset(self._root)
            self._config = self._config if source.is_dir() else source.name
        if self.kind or source.is_dir() or source.suffix in {".properties", ".cfg", ".config"}:
            self._read_config()
            self.models += self._list_models()
            self.kind = self.kind or ("config.properties" if self.settings else "model store" if self.models else "")

    def _resolve(self, text: str) -> PurePosixPath:
        """Return the path from which a copy or volume makes a path, or the path itself."""
        wanted = _path(text)
        for place in (wanted, *wanted.parents[:-1]):
            for target, source in self._copies.items():
                if _has_end(target, place):
                    return _path(source) / wanted.relative_to(place)
        return wanted

    def _find(self, text: str) -> Path | None:
        """Return the file or folder in the deployment whose path has the longest end in common with a path."""
        parts = self._resolve(text).parts
        named = [path for path in self._paths if path.parts[-1:] == parts[-1:]]
        named.sort(key=lambda path: not path.is_relative_to(self._folder))
        ends = (parts[start:] for start in range(len(parts)))
        return next((path for end in ends for path in named if path.parts[-len(end) :] == end), None)

    def _copy(self, words: list[str]) -> None:
        """Note the sources of a copy."""
        *sources, target = [word for word in words if not word.startswith("-")] or [""]
        for source in (re.sub(r"[^/]*[*?[].*", "", each) for each in sources):  # the folder of a pattern
            into, name = _path(target), PurePosixPath(source)
            is_folder = len(sources) > 1 or target.endswith(("/", ".")) or not into.suffix
            self._copies[into / name.name if is_folder and name.suffix else into] = source

    def _read_yaml(self, path: Path) -> None:
        """Read the predictor, the services or the first container that run TorchServe."""
        texts = re.split(r"^---\s*$", read_text_file(path, limit=_MAX_BYTES), flags=re.MULTILINE)
        texts = [text for text in texts if text.count("*") * len(text) < _MAX_EXPANDED]  # aliases of long texts
        nodes = [node for text in texts for node in _mappings(read_yaml(text).value)]
        written = [pair for each in nodes if each.get("kind") == "ConfigMap" for pair in _pairs(each.get("data"))]
        dotenv = path.parent / ".env"
        servers = [each for each in nodes if each.keys() & {"build", "image", "model", "pytorch"}]
        servers.sort(key=lambda each: [word not in str(each) for word in ("storageUri", "torchserve")])
        for node in servers[:_MAX_SERVERS]:
            if not self.kind:
                self._reset(path.parent)
                self._texts = dict(written)
                if dotenv.is_file() and not leads_out(dotenv, self._root):
                    self._read_script(dotenv)
            elif self.kind != "compose file" or "torchserve" not in f"{node.get('image')} {node.get('command')}":
                continue
            match node:
                case {"pytorch": {"storageUri": str()} as model} | {
                    "model": {"modelFormat": {"name": "pytorch"}, "storageUri": str()} as model
                }:
                    self._read_predictor(path, model | node)
                case {"image": _} | {"build": _}:
                    self._read_container(path, node)

    def _read_predictor(self, path: Path, predictor: dict[str, Any]) -> None:  # Any: YAML
        """Read a predictor of KServe, whose storage is a folder beside the file."""
        self._copies[_path("/mnt/models")] = predictor["storageUri"].partition("://")[2]
        if self._find("/mnt/models/model-store") is None:
            what = f"the storage folder of {_shown(predictor['storageUri'])} is not beside the file"
            raise NotDeploymentError(what, where=str(path), hint="Download it beside the file, with model-store/.")
        self._store, self._config = "/mnt/models/model-store", "/mnt/models/config/config.properties"
        version = predictor.setdefault("protocolVersion", "v1")
        self.config["service_envelope"] = "kservev2" if version == "v2" else "kserve"  # the config file replaces it
        self._read_container(path, predictor)
        self.kind = "KServe InferenceService"

    def _read_container(self, path: Path, container: dict[str, Any]) -> None:  # Any: YAML
        """Read a service of a compose file, or a container of Kubernetes."""
        build = container["build"] if isinstance(container.get("build"), dict) else {"context": container.get("build")}
        dockerfile = path.parent / str(build.get("context") or "") / str(build.get("dockerfile", "Dockerfile"))
        self._variables |= {name: self._expand(value) for name, value in _pairs(build.get("args")) if value}
        if "build" in container and dockerfile.is_file():
            if leads_out(dockerfile, self._root):
                what = f"the build context {build.get('context')} is outside the folder of the file"
                raise NotDeploymentError(what, where=str(path), hint="Migrate the folder that contains both.")
            self._read_script(dockerfile)
        for volume in _list(container.get("volumes")):
            text = f"{volume.get('source')}:{volume.get('target')}" if isinstance(volume, dict) else str(volume)
            source, target, *_ = f"{text}:".split(":")
            self._copies[_path(target)] = source
            self._volumes.append(path.parent / source)
        self._note_environment(path.name, _pairs(container.get("environment", container.get("env"))))
        for name, value in container.items():
            if name in {"image", "env_file", "storageUri", "protocolVersion"}:
                self._note(path.name, name, ", ".join(map(str, _list(value))))
            elif not _READ_KEYS.fullmatch(str(name)):
                self._note(path.name, str(name), "", "(platform)")
        words = [str(word) for key in ("entrypoint", "command", "args") for word in _list(container.get(key))]
        self._follow(path.name, _join_lines(" ".join(words)))
        if "torchserve" in str(container.get("image")) or self.kind:
            self.kind = "Kubernetes manifest" if "containerPort" in str(container) else "compose file"

    def _read_script(self, path: Path) -> None:
        """Read a script or a Dockerfile, once: a script may call itself."""
        if path in self._scripts:
            return
        self._scripts.add(path)
        text = _join_lines(read_text_file(path, limit=_MAX_BYTES))
        is_image = re.search(r"^FROM ", text, re.IGNORECASE | re.MULTILINE) is not None
        if is_image:
            text = re.sub(r"^\w+ ", lambda found: found[0].upper(), text, flags=re.MULTILINE)
            text = re.sub(r"^(ENTRYPOINT .*)\nCMD ", r"\1 ", text, flags=re.MULTILINE)
        self._follow(path.name, text)
        if is_image and (self.kind or "torchserve" in text):
            self.kind = "Dockerfile"

    def _note_environment(self, origin: str, pairs: Iterable[tuple[str, str]]) -> None:
        for name, value in pairs:
            if not value or _SECRET.search(name) or _SECRET_ADDRESS.search(value):
                self._note(origin, name, "", "(secret)" if value else "(unknown)")
                continue
            is_exported = re.fullmatch(r"[A-Za-z_]\w*", name) and not _NOT_EXPORTED.fullmatch(name)
            self._note(origin, name, value, "(variable)" if is_exported else "(image)")
            self._variables[name] = value
            self.environment |= {name: value} if is_exported else {}

    def _expand(self, text: str) -> str:
        """Return a text with the values of the known variables; one that becomes too long stays as it is."""
        expanded = _VARIABLE.sub(lambda found: self._variables.get(found[1] or found[3], found[2] or found[0]), text)
        return expanded if len(expanded) <= _MAX_VALUE else text

    def _follow(self, origin: str, lines: str) -> None:
        """Read the commands of a script, or of the command of a container."""
        for found in islice(_COMMANDS.finditer(lines), _MAX_COMMANDS):
            text = self._expand(found[found.lastgroup or 0])
            match (found["command"] or found.lastgroup or "").split()[0]:
                case "torchserve":
                    self._read_start(origin, text)
                case "torch-model-archiver":
                    self._read_archiver(text)
                case "FROM" | "pip" | "pip3" as name:
                    self._note(origin, "FROM" if name == "FROM" else "pip install", text)
                case "ENV":
                    words = _split(text)
                    self._note_environment(origin, _pairs(words if "=" in words[0] else ["=".join(words[:2])]))
                case "COPY" | "ADD" | "cp" | "mv":
                    self._copy(_split(text))
                case "file":
                    file, written = PurePosixPath(text).name.strip("\"'"), " ".join(_split(found["text"]))
                    written = re.sub(r"^(-\w+ )+", "", written).replace("\\n", "\n")
                    self._texts[file] = f"{self._texts.get(file, '')}{self._expand(written)}\n"
                case "value" if not _SECRET.search(found["name"]) and "$(" not in text:
                    self._variables[found["name"]] = text.strip("\"'")
                case "script" if (script := self._find(text)) is not None and script.is_file():
                    self._read_script(script)

    def _read_archiver(self, text: str) -> None:
        """Read the flags of an archive that the deployment builds."""
        flags, missing = dict[str, str](), ""
        for option, values in _options(text).items():
            name, value = _FLAGS.get(option, option[2:].replace("-", "_")), " ".join(values)
            if not value or name not in Flags.__struct_fields__ or name == "export_path":
                continue
            if "_file" in name or value.endswith(".py"):
                places = {each: self._find(each) for each in re.split(r"[,\s]+", value) if each}
                missing = missing or next((each for each, place in places.items() if place is None), "")
                value = ",".join(map(str, places.values()))
            flags[name] = value
        if "model_name" in flags:
            file = f"{flags['model_name']}.mar"
            self._built[file] = DeployedModel(flags=flags, missing=missing, file=file)

    def _read_start(self, origin: str, text: str) -> None:
        given = _options(text.rpartition(" torchserve ")[2])  # after docker run --name torchserve
        if not given.keys() & _results().keys():
            return  # it stops the server, or belongs to another command
        self.kind = self.kind or "start script"
        self._words += given.get("--models", [])
        self._store = (given.get("--model-store") or [self._store])[0]
        self._config = (given.get("--ts-config") or [self._config])[0]
        self.options += ["--enable-model-api"] if any("model-api" in name for name in given) else []
        for name, values in given.items():
            result = name if name in _results() else "(option)"
            if name == "--ts-config" and PurePosixPath(self._config).name not in self._texts:
                result = name if self._find(self._config) else "(missing)"
            self._note(origin, name, " ".join(values), result)

    def _read_config(self) -> None:
        """Read the settings of the config file, if there is one: those with an effect become the new file."""
        place = _path(self._variables.get("TS_CONFIG_FILE", self._config))
        found = self._find(str(place))
        texts = read_properties(found) if found is not None and found.is_file() else {}
        texts |= parse_properties(self._texts.get(place.name, "").encode("latin-1", "replace"))
        for key, text in texts.items():
            self._read_key(place.name, key, text)
        snapshot = ServerConfig.parse_value("model_snapshot", texts.get("model_snapshot", '{"models": {}}'))
        if snapshot:
            self.config["models"] = json.dumps(json.loads(texts["model_snapshot"])["models"])
        versions = [f"{name}={each.mar_name}" for name, known in snapshot.items() for each in known.values()]
        self._words = self._words or versions or [texts.get("load_models", "")]
        self._volumes.append(self._root / texts.get("model_store", "").strip())
        self._store = self._store or texts.get("model_store") or "model-store"
        if "--enable-model-api" in self.options or self.config.get("enable_model_api", "").lower() == "true":
            self.options = ["--model-store", "model-store", *self.options]
        if self.config.get("disable_token_authorization", "").strip().lower() == "false":
            self.options += ["--token", "key_file.json"]  # new keys: those of the deployment are not copied

    def _read_key(self, origin: str, key: str, text: str) -> None:
        """Note a key of the config file; one with an effect becomes a key of the new file."""
        shown, kept, result, detail = "" if _SECRET.search(key) else text, True, "(kept)", ""
        if (ignored := reason_without_effect(key)) is not None:
            kept, result, detail = False, "(ignored)", ignored
        elif _SECRET.search(key) or _SECRET_ADDRESS.search(text):
            kept, result = False, "(secret key)"
        elif key in {"model_store", "load_models", "model_snapshot"}:
            kept, result = False, key
        elif key == "metrics_config":
            found = self._find(text)
            self.metrics = found if found is not None and found.is_file() else None
            kept, text, result = self.metrics is not None, "metrics.yaml", key if self.metrics else "(missing)"
        elif variable := re.search(r"\$\$([^$]{2,})\$\$", text):
            result, detail = "(environment)", variable[1]
        else:
            try:
                value = ServerConfig.parse_value(key, text)
                is_set = not value.is_loopback if key == "management_address" else bool(value)
                result = key if is_set and key in {"management_address", "allowed_urls", "enable_grpc_ssl"} else result
            except UsageError as error:
                kept, result, detail = False, "(left out)", error.what
                if error.code == "tls-not-supported":
                    port = re.search(r":(\d+)", text)
                    kept, text, result = True, f"http://127.0.0.1:{port[1] if port else 8080}", "(https)"
        if kept:
            self.config[key] = text
        self._note(origin, key, shown, result, detail)

    def _note_defaults(self) -> None:
        """Note the defaults of TorchServe that differ from those of marpack serve."""
        given = {each.name for each in self.settings}
        for name in [each for each in ("default_workers_per_model", "grpc_inference_port") if each not in given]:
            self._note("default", name)
        versions = [found for each in self.settings for found in _VERSION.findall(each.value)]
        has_tokens = not versions or tuple(int(number or 0) for number in versions[-1]) >= (0, 11, 1)
        if has_tokens and not any(re.match(r"(--)?(dt$|disable.token)", name) for name in given):
            self._note("default", "disable_token_authorization")
        if any(not each.at_start for each in self.models):
            self._note("store", "models")

    def _list_models(self) -> Iterator[DeployedModel]:
        """Yield the models that the deployment loads at its start, then the others of its store."""
        stored, named = self._list_store(), set[str]()
        for word in dict.fromkeys(re.findall(r"[^,\s]+", " ".join(self._words))):
            name, _, file = word.rpartition("=")
            found = [*stored.values()]
            if "$" in file:
                self._note("store", "models", word, "(models)")
                continue
            if word.lower() != "all":
                model = stored.get(self._resolve(file).name) or self._model_of(self._find(file), file)
                found = [replace(model, name=name if name[:1] != "-" else None)]  # it would be an option
            named.update(model.file for model in found)
            yield from found
        yield from (replace(model, at_start=not named) for file, model in stored.items() if file not in named)

    def _list_store(self) -> dict[str, DeployedModel]:
        """Return the archives and model folders of the store, and those that the deployment builds, by name."""
        store = _path(self._store)
        copied = [self._find(source) for target, source in self._copies.items() if _has_end(target.parent, store)]
        found = [path for path in copied if path is not None and _is_archive(path)]
        volumes = [each for each in self._volumes if each.name == self._resolve(self._store).name]
        others = (path.parent for path in self._paths if path.suffix == ".mar")
        folders = (self._find(self._store), *volumes, self._find("model_store"), self._folder, *others)
        for folder in (each for each in folders if each is not None and each.is_dir() and not found):
            found = [path for path in sorted(folder.iterdir()) if path.name[0] != "." and _is_archive(path)]
        return self._built | {path.name: self._model_of(path, path.name) for path in found}

    def _model_of(self, path: Path | None, file: str) -> DeployedModel:
        """Return the model of an archive, which is in the deployment's folder or in a volume of it."""
        if path is None:
            return DeployedModel(missing="the archive", file=_shown(file))
        if leads_out(path, self._root):
            if path.parent not in self._volumes or path.resolve().parent != path.parent.resolve():
                return DeployedModel(missing=f"the target of the link {file}", file=file)
            self.outside.append(str(path))
        return DeployedModel(source=path, file=path.name)

    def _note(self, origin: str, name: str, value: str = "", result: str = "", detail: str = "") -> None:
        """Note a setting, whose result is in the table under its own name or another."""
        outcome, reason = _results()[result or name]
        reason = reason.format(detail)
        self.settings.append(Setting(origin=origin, name=name, value=_shown(value), outcome=outcome, reason=reason))


def _is_archive(path: Path) -> bool:
    return path.name.endswith(_ARCHIVES) or (path / "MAR-INF").is_dir() or (path / "code" / "inference.py").is_file()


def _list_paths(root: Path) -> Iterator[Path]:
    """Yield the files and folders below a folder, except hidden ones and links out of it."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name[0] != "."]
        for name in sorted((*folders, *files)):
            path = Path(folder) / name
            if name[0] != "." and not (path.is_symlink() and leads_out(path, root)):
                yield path


def _path(text: str) -> PurePosixPath:
    """Return a path without a root and without steps up."""
    return PurePosixPath(*(part for part in PurePosixPath(text.strip()).parts if part not in {"/", ".."}))


def _has_end(path: PurePosixPath, end: PurePosixPath) -> bool:
    """Return whether the shorter of two paths is the end of the other."""
    length = min(len(path.parts), len(end.parts))
    return length > 0 and path.parts[-length:] == end.parts[-length:]


def _join_lines(text: str) -> str:
    """Return a script without comments, with continued lines joined, and here-documents as echo commands."""
    text = re.sub(r"[\\`^][ \t]*\r?\n", " ", _COMMENT.sub(r"\1", text))
    text = "".join(f"{line}\n" for line in map(str.strip, text.splitlines()) if line)
    text = _LIST.sub(lambda found: found[1] + re.sub(r"[,\"']+", " ", found[2]), text)
    return _HERE.sub(lambda found: f"echo {shlex.quote(found[4])} {found[1]} {found[3]}", text)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text) or [""]
    except ValueError:  # an open quotation mark
        return text.split() or [""]


def _options(text: str) -> dict[str, list[str]]:
    """Return the values of each option of a command."""
    return {name: values.split() for name, values in _OPTION.findall(" ".join(_split(text)))}


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
        return [(str(name), "" if text is None else str(text)) for name, text in value.items()]
    dicts = [each if isinstance(each, dict) else {"name": each} for each in _list(value)]
    texts = ["=".join(str(each[key]) for key in ("name", "value") if each.get(key) is not None) for each in dicts]
    return [(name, text) for name, _, text in (each.partition("=") for each in texts)]


def _shown(text: str) -> str:
    """Return a value without user and password."""
    return _SECRET_ADDRESS.sub("…@", text.strip())
