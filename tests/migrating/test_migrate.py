"""`marpack migrate`: recorded deployments of TorchServe, and deployments that are wrong or hostile."""

import json
import re
import shutil
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from invoking import invoke

from marpack.errors import MarpackError
from marpack.migrating.deployment import Deployment

DEPLOYMENTS = Path(__file__).parents[1] / "data" / "deployments"
SECRET = "do-not-copy-me"

# Deployment → its kind, the words of marpack serve, and the settings that need a decision.
EXPECTED = {
    "model-store": ("model store", "swap=./swap upper=./upper", "disable_token_authorization"),
    "config": (
        "config.properties",
        "upper=./upper swap=./swap --ts-config config.properties",
        "disable_token_authorization",
    ),
    "snapshot": (
        "config.properties",
        "text=./text text=./text-2 --ts-config config.properties",
        "disable_token_authorization",
    ),
    "dockerfile": ("Dockerfile", "shout=./upper --ts-config config.properties", "pip install, API_TOKEN"),
    "dockerfile-archiver": ("Dockerfile", "upper=./upper", ""),
    "entrypoint": ("Dockerfile", "upper=./upper --ts-config config.properties", ""),
    "compose": (
        "compose file",
        "upper=./upper --model-store model-store --enable-model-api",
        "AWS_SECRET_ACCESS_KEY",
    ),
    "compose-build": ("compose file", "upper=./upper", "env_file"),
    "kserve-v1": (
        "KServe InferenceService",
        "upper=./upper --ts-config config.properties",
        "disable_token_authorization",
    ),
    "kserve-v2": (
        "KServe InferenceService",
        "upper=./upper --ts-config config.properties",
        "disable_token_authorization",
    ),
    "sagemaker": ("model store", "model=./model", "disable_token_authorization"),
    "start-script": (
        "start script",
        "upper=./upper --ts-config config.properties --token key_file.json",
        "inference_address, management_address, allowed_urls, default_response_timeout, metrics_config",
    ),
}
CONFIGS = {
    "config": {"inference_address", "default_response_timeout", "models", "default_workers_per_model"},
    "kserve-v2": {"service_envelope=kservev2", "inference_address", "models"},
    "start-script": {"inference_address=http://127.0.0.1:8443", "max_request_size=$$MAX_SIZE$$"},
    "entrypoint": {"service_envelope=json", "enable_envvars_config"},
}


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def migrate(source: Path, output: Path, *words: str, code: int = 0) -> dict:
    return json.loads(invoke("migrate", str(source), "-o", str(output), "--json", *words, code=code).stdout)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_deployment_is_moved(tmp_path, name):
    kind, words, decisions = EXPECTED[name]
    before = contents(DEPLOYMENTS / name)
    found = migrate(DEPLOYMENTS / name, tmp_path / "new", code=int(name == "start-script"))
    assert (found["kind"], " ".join(found["command"][2:])) == (kind, words)
    assert [each["name"] for each in found["settings"] if each["outcome"] == "needs a decision"] == (
        decisions.split(", ") if decisions else []
    )
    missing = [model["archive"] for model in found["models"] if model.get("problem")]
    assert missing == (["missing.mar"] if name == "start-script" else [])
    for model in found["models"]:
        if model.get("project"):
            invoke("build", str(tmp_path / "new" / model["project"]))
    config = tmp_path / "new" / "config.properties"
    lines = config.read_text().splitlines() if config.exists() else []
    for expected in CONFIGS.get(name, ()):
        assert [line for line in lines if line.startswith(expected)], expected
    assert contents(DEPLOYMENTS / name) == before
    assert not [
        path for path in (tmp_path / "new").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert SECRET not in json.dumps(found)


def test_every_recorded_deployment_is_expected():
    assert sorted(path.name for path in DEPLOYMENTS.iterdir()) == sorted(EXPECTED)


def test_grpc_is_kept_and_its_tls_needs_a_decision(tmp_path):
    shutil.copytree(DEPLOYMENTS / "snapshot", tmp_path / "old")
    with (tmp_path / "old" / "config.properties").open("a") as config:
        config.write("\ngrpc_management_port=7071\nenable_grpc_ssl=true\n")
    found = migrate(tmp_path / "old", tmp_path / "new")
    outcomes = {each["name"]: each["outcome"] for each in found["settings"] if "grpc" in each["name"]}
    assert outcomes == {
        "grpc_inference_port": "kept",
        "grpc_management_port": "no effect",
        "enable_grpc_ssl": "needs a decision",
    }
    lines = (tmp_path / "new" / "config.properties").read_text().splitlines()
    assert {"grpc_inference_port=7070", "enable_grpc_ssl=true"} <= set(lines)  # which prevents the start


def test_a_snapshot_keeps_the_settings_and_the_default_of_its_versions(tmp_path):
    migrate(DEPLOYMENTS / "snapshot", tmp_path / "new")
    line = next(
        line for line in (tmp_path / "new/config.properties").read_text().splitlines() if line.startswith("models=")
    )
    versions = json.loads(line.removeprefix("models="))["text"]
    assert (versions["1.0"]["defaultVersion"], versions["2.0"]["batchSize"]) == (True, 2)


def test_the_models_are_checked_with_the_samples_of_a_folder(tmp_path):
    (tmp_path / "samples" / "upper").mkdir(parents=True)
    (tmp_path / "samples" / "upper" / "a.txt").write_text("hello")
    samples = ("--check", "--samples", str(tmp_path / "samples"))
    found = migrate(DEPLOYMENTS / "model-store", tmp_path / "new", *samples)
    verdicts = {model["name"]: model["verdict"] for model in found["models"]}
    assert verdicts == {"swap": "not-proved", "upper": "deployable"}


def test_a_model_that_fails_its_check_is_reported(tmp_path):
    shutil.copytree(DEPLOYMENTS / "dockerfile-archiver", tmp_path / "old")
    handler = tmp_path / "old" / "src" / "upper.py"
    handler.write_text(handler.read_text().replace("self.version = ", "self.version = 1 / 0  # "))
    found = migrate(tmp_path / "old", tmp_path / "new", "--check", code=1)
    [model] = found["models"]
    assert (model["verdict"], model["project"]) == ("refused", "upper")
    assert "loads" in model["problem"]
    assert (tmp_path / "new" / "MIGRATION.md").exists()


@pytest.mark.parametrize(
    "platform",
    [pytest.param("docker", marks=pytest.mark.slow), "ray-serve"],  # pip locks an image's requirements: 20 seconds
)
def test_each_model_is_exported(tmp_path, platform):
    found = migrate(DEPLOYMENTS / "compose-build", tmp_path / "new", "--to", platform)
    assert found["models"][0]["exported"] == f"upper-{platform}"
    assert (tmp_path / "new" / f"upper-{platform}" / "README.md").exists()


def test_a_damaged_archive_does_not_keep_the_others_from_being_moved(tmp_path):
    shutil.copytree(DEPLOYMENTS / "model-store", tmp_path / "old")
    (tmp_path / "old" / "broken.mar").write_bytes(b"PK\3\4 not an archive")
    found = migrate(tmp_path / "old", tmp_path / "new", code=1)
    assert {model["name"]: bool(model.get("problem")) for model in found["models"]} == {
        "broken.mar": True,
        "swap": False,
        "upper": False,
    }


# --- Wrong and hostile sources


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


BROKEN = {
    "an empty folder": {},
    "a text file": {"notes.txt": "torchserve --start"},
    "a Dockerfile of something else": {"Dockerfile": "FROM python\nCMD python app.py\n"},
    "YAML that cannot be read": {"docker-compose.yml": "services: [\n"},
    "YAML of something else": {"deployment.yaml": "kind: Deployment\n"},
    "an InferenceService without storage": {
        "s.yaml": "kind: InferenceService\nspec:\n  predictor:\n    pytorch:\n      storageUri: gs://bucket/none\n"
    },
    "an InferenceService of another framework": {
        "s.yaml": "kind: InferenceService\nspec:\n  predictor:\n    sklearn:\n      storageUri: gs://bucket/none\n"
    },
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_a_deployment_is_refused(tmp_path, name):
    source = write(tmp_path / "old", BROKEN[name])
    source.mkdir(exist_ok=True)
    refused = invoke("migrate", str(source), "-o", str(tmp_path / "new"), code=2)
    assert refused.cause == "not-a-deployment"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("nowhere",), "not-a-deployment"),
        ((str(DEPLOYMENTS / "config"), "-o", "full"), "output-holds-other-files"),
        ((str(DEPLOYMENTS / "config"), "-o", "file"), "output-not-a-folder"),
        ((str(DEPLOYMENTS / "config"), "--samples", "full"), "usage"),
        ((str(DEPLOYMENTS / "config"), "--check", "--samples", "nowhere"), "usage"),
        ((), "usage"),
        ((str(DEPLOYMENTS / "config"), "--to", "heroku"), "usage"),
    ],
)
def test_wrong_options_write_nothing(tmp_path, words, cause):
    write(tmp_path, {"full/a.txt": "mine", "file": "mine"})
    before = contents(tmp_path)
    assert invoke("migrate", *words, cwd=tmp_path, code=2).cause == cause
    assert contents(tmp_path) == before


def test_values_that_the_server_would_refuse_end_the_migration(tmp_path):
    source = write(tmp_path / "old", {"config.properties": "model_snapshot={not json}\nmodel_store=.\n"})
    assert invoke("migrate", str(source), "-o", str(tmp_path / "new"), code=2).error is not None
    assert not (tmp_path / "new").exists()


def test_a_config_with_continued_lines_escapes_and_unknown_keys_keeps_its_values(tmp_path):
    text = "cors_allowed_headers = X-\\u0041, \\\n    X-B\nblacklist_env_vars=A\\\\d+\nlosd_models=all\nwhatever=1\n"
    source = write(tmp_path / "old", {"config.properties": text})
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source)
    found = migrate(source, tmp_path / "new")
    config = (tmp_path / "new" / "config.properties").read_text()
    assert config == "cors_allowed_headers=X-A, X-B\nblacklist_env_vars=A\\\\d+\n"
    unknown = {
        each["name"]: each["reason"] for each in found["settings"] if each["name"] in {"losd_models", "whatever"}
    }
    assert "load_models" in unknown["losd_models"]
    assert unknown["whatever"] == "not a known key"


def test_files_outside_the_deployment_are_not_copied(tmp_path):
    (tmp_path / "secret.yaml").write_text(SECRET)
    source = write(tmp_path / "old", {"config.properties": "metrics_config=../secret.yaml\nmodel_store=.\n"})
    (source / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source)
    for name in ("../secret.yaml", "link.yaml"):
        (source / "config.properties").write_text(f"metrics_config={name}\nmodel_store=.\n")
        output = tmp_path / f"new-{Path(name).stem}"
        found = migrate(source, output)
        [setting] = [each for each in found["settings"] if each["name"] == "metrics_config"]
        assert setting["outcome"] == "needs a decision"
        assert not [path for path in output.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("named", ["/etc/hostname", "../secret.txt", "link.txt", "src/../../secret.txt"])
def test_an_image_packs_no_files_from_outside_the_deployment(tmp_path, named):
    shutil.copytree(DEPLOYMENTS / "dockerfile-archiver", tmp_path / "old")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "old" / "link.txt").symlink_to(tmp_path / "secret.txt")
    dockerfile = tmp_path / "old" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("src/words.txt", named))
    found = migrate(tmp_path / "old", tmp_path / "new", code=1)
    assert named in found["models"][0]["problem"]
    assert not [path for path in (tmp_path / "new").rglob("*") if path.suffix in {".txt", ".yaml"}]


def test_secrets_of_the_environment_are_named_only(tmp_path):
    values = dict.fromkeys(["DB_PWD", "APIKEY", "HF_TOKEN", "AWS_ACCESS_KEY_ID", "BASIC_AUTH"], SECRET)
    values["DATABASE"] = f"postgres://user:{SECRET}@host/db"
    variables = "".join(f"ENV {name}={value}\n" for name, value in values.items())
    lines = f"FROM pytorch/torchserve\n{variables}RUN pip install -i https://u:{SECRET}@host/simple x\n"
    start = f'CMD ["torchserve", "--start", "--models", "a=https://u:{SECRET}@host/a.mar"]\n'
    source = write(tmp_path / "old", {"Dockerfile": lines + start})
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source)
    found = migrate(source, tmp_path / "new", code=1)
    assert values.keys() <= {each["name"] for each in found["settings"]}
    written = [path.read_bytes() for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert not [data for data in (*written, json.dumps(found).encode()) if SECRET.encode() in data]


@pytest.mark.parametrize("named", ["../../store/*.mar", "../../**/*.mar", "../a/../../store/upper.mar", "../../store"])
def test_an_image_copies_nothing_from_outside_its_context(tmp_path, named):
    (tmp_path / "store").mkdir()
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", tmp_path / "store")
    start = "CMD torchserve --start --model-store /models --models upper.mar"
    source = write(tmp_path / "old" / "a", {"Dockerfile": f"FROM pytorch/torchserve\nCOPY {named} /models/\n{start}\n"})
    found = migrate(source, tmp_path / "new", code=1)
    assert [model.get("project") for model in found["models"]] == [None]


def test_hostile_values_stay_values(tmp_path):
    """Values of a deployment are neither commands of the script nor Markdown of the report."""
    marker = tmp_path / "ran"
    hostile = f"'; touch {marker}; echo '$(touch {marker})"
    source = write(
        tmp_path / "old",
        {
            "docker-compose.yml": json.dumps(
                {
                    "services": {
                        "a": {
                            "image": "torchserve",
                            "command": f"torchserve --start --model-store store --models '$(touch>{marker})=upper.mar'",
                            "environment": {"GOOD": hostile, "BAD\nNAME=$(touch x)": "1", "PATH": "/evil"},
                            "x|y\n# Title <script>": {},
                        }
                    }
                }
            )
        },
    )
    (source / "store").mkdir()
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source / "store")
    found = migrate(source, tmp_path / "new")
    script = (tmp_path / "new" / "marpack-serve.sh").read_text()
    assert "BAD" not in script
    assert "PATH=" not in script
    lines = script.replace("exec marpack serve", "echo")
    (tmp_path / "new" / "echo.sh").write_text(lines)
    subprocess.run(["sh", str(tmp_path / "new" / "echo.sh")], check=True, timeout=20, stdout=subprocess.DEVNULL)
    assert not marker.exists()
    report = (tmp_path / "new" / "MIGRATION.md").read_text()
    assert not re.search(r"(?<!\\)<script>", report)
    assert not re.search(r"^# Title", report, re.MULTILINE)
    assert found["models"][0]["name"].startswith("$(touch")


@pytest.mark.parametrize(("name", "shown"), [("../secret", "../secret"), ("--token", "upper")])
def test_a_name_is_neither_a_path_nor_an_option(tmp_path, name, shown):
    properties = f"load_models={name}=upper.mar\nmodel_store=.\ndisable_token_authorization=true\n"
    source = write(tmp_path / "old", {"config.properties": properties})
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source)
    (tmp_path / "samples").mkdir()
    write(tmp_path / "secret", {"a.txt": "hello"})
    found = migrate(source, tmp_path / "new", "--check", "--samples", str(tmp_path / "samples"))
    assert found["command"][2] == f"{shown}=./upper"
    assert found["models"][0]["verdict"] == "not-proved"


def test_a_decision_is_not_needed_for_what_is_off(tmp_path):
    source = write(tmp_path / "old", {"config.properties": "disable_token_authorization=true\nmodel_store=.\n"})
    shutil.copy(DEPLOYMENTS / "config/model-store/upper.mar", source)
    settings = {each.name: each.outcome for each in Deployment(source).settings if each.origin != "default"}
    assert settings == {"disable_token_authorization": "kept", "model_store": "changed"}


# --- Shapes of deployments: their files, the names that they serve, and lines of the new config

HANDLER = (DEPLOYMENTS / "dockerfile-archiver/src/upper.py").read_text()
ARCHIVE = DEPLOYMENTS / "config/model-store/upper.mar"
ENTRY = '#!/bin/bash\nif [[ "$1" = "serve" ]]; then\n  shift 1\n  %s\nelse\n  eval "$@"\nfi\ntail -f /dev/null\n'
START = "torchserve --start --model-store model-store --models a=a.mar"
POD = """kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: pytorch/torchserve:0.9.0-cpu
        args: [torchserve, --start, --models, a=a.mar, --ts-config=/config/config.properties]
        ports:
        - containerPort: 8080
---
kind: ConfigMap
data:
  config.properties: |
    job_queue_size=7
"""
SHAPES = {
    "instructions in lower case": (
        {"Dockerfile": f"from pytorch/torchserve\ncopy s model-store\ncmd {START}\n", "s/a.mar": None},
        "a",
        "",
    ),
    "options with an equals sign": (
        {
            "Dockerfile": "FROM pytorch/torchserve\nCOPY h.py /home/\nRUN torch-model-archiver --model-name=a"
            ' --version=1.0 --handler=/home/h.py\nCMD ["torchserve", "--start", "--models=b=a.mar"]\n',
            "h.py": HANDLER,
        },
        "b",
        "",
    ),
    "a config that the image appends to": (
        {
            "Dockerfile": 'FROM pytorch/torchserve\nCOPY a.mar model-store/\nRUN printf "\\njob_queue_size=7" >> '
            f"/home/model-server/config.properties\nCMD {START} --ts-config config.properties\n",
            "a.mar": None,
        },
        "a",
        "job_queue_size=7",
    ),
    "a config that a script writes": (
        {
            "start.sh": f"cat << EOF > x.properties\njob_queue_size=7\nEOF\n{START} --ts-config x.properties",
            "a.mar": None,
        },
        "a",
        "job_queue_size=7",
    ),
    "the config in the working folder": (
        {"start.sh": "torchserve --start", "config.properties": "load_models=a.mar\njob_queue_size=7", "a.mar": None},
        "upper",
        "job_queue_size=7",
    ),
    "a config in a variable": (
        {
            "Dockerfile": "FROM pytorch/torchserve\nCOPY conf/x.properties /x/y.properties\n"
            f"ENV TS_CONFIG_FILE=/x/y.properties\nCMD {START}\n",
            "conf/x.properties": "job_queue_size=7",
            "a.mar": None,
        },
        "a",
        "job_queue_size=7",
    ),
    "variables of a script": (
        {
            "start.sh": f'N="a"\nS=store\n{START.replace("a.mar", "$N.mar").replace("model-store", "${S}")}',
            "store/a.mar": None,
        },
        "a",
        "",
    ),
    "variables without a value": (
        {"start.sh": START.replace("a=a.mar", "$NAME=$FILE"), "model-store/a.mar": None},
        "upper",
        "",
    ),
    "arguments and variables of an image": (
        {
            "Dockerfile": "ARG TAG=latest\nFROM pytorch/torchserve:$TAG\nARG NAME\nENV N=${NAME:-a}\n"
            "COPY $N.mar .\nCMD torchserve --start --models $N=$N.mar",
            "a.mar": None,
        },
        "a",
        "",
    ),
    "lists of files to copy": (
        {"Dockerfile": f'FROM pytorch/torchserve\nCOPY ["store", "./model-store"]\nCMD {START}', "store/a.mar": None},
        "a",
        "",
    ),
    "words with spaces and a missing comma": (
        {"Dockerfile": 'FROM pytorch/torchserve\nCMD ["torchserve " "--start","--models a=a.mar"]', "a.mar": None},
        "a",
        "",
    ),
    "stages and scripts that build an archive": (
        {
            "Dockerfile": "FROM pytorch/torchserve AS one\nCOPY h.py h.py\nRUN ./scripts/make.sh\nFROM pytorch/torch"
            'serve\nCOPY --from=one /app/model_store model_store\nENTRYPOINT ["./entry.sh"]\nCMD ["serve"]',
            "scripts/make.sh": 'torch-model-archiver --model-name x --version 1 --handler "h.py" '
            '--extra-files "w/a,w/b"',
            "entry.sh": ENTRY % "torchserve --start --model-store model_store --models a=x.mar",
            "h.py": HANDLER,
            "w/a": "1",
            "w/b": "2",
        },
        "a",
        "",
    ),
    "renamed archives": (
        {
            "Dockerfile": f"FROM pytorch/torchserve\nCOPY x.mar s/\nRUN mv s/x.mar model-store/a.mar\nCMD {START}",
            "x.mar": None,
        },
        "a",
        "",
    ),
    "descriptions in subfolders": (
        {
            "deploy/docker-compose.yml": "services: {a: {build: {context: .., dockerfile: deploy/x.Dockerfile}}}",
            "deploy/x.Dockerfile": f"FROM pytorch/torchserve\nCOPY models/a.mar model-store/\nCMD {START}",
            "models/a.mar": None,
        },
        "a",
        "",
    ),
    "docker run": (
        {
            "run.sh": f"docker run --name torchserve -p 80:80 -v $(pwd)/s:/m pytorch/torchserve:0.9.0 {START}",
            "s/a.mar": None,
        },
        "a",
        "",
    ),
    "a Makefile": ({"Makefile": f"M := a\nserve:\n\t@{START.replace('a=a', '$(M)=$(M)')}\n", "a.mar": None}, "a", ""),
    "a unit of systemd": ({"x.service": f"[Service]\nExecStart=/opt/bin/{START}\n", "a.mar": None}, "a", ""),
    "supervisord": (
        {
            "Dockerfile": 'FROM python\nRUN pip install torchserve\nCOPY . .\nCMD ["supervisord", "-c", "/app/x.conf"]',
            "x.conf": f"[program:x]\ncommand={START}\n",
            "a.mar": None,
        },
        "a",
        "",
    ),
    "Kubernetes": ({"pod.yaml": POD, "a.mar": None}, "a", "job_queue_size=7"),
    "variables of a compose file": (
        {
            "compose.yaml": "services: {x: {image: torchserve, volumes: ['./s:/m'], command: "
            "'torchserve --start --model-store /m --models ${NAME:-a}=${FILE}'}}",
            ".env": "FILE=a.mar\n",
            "s/a.mar": None,
        },
        "a",
        "",
    ),
    "two services": (
        {
            "compose.yaml": json.dumps(
                {
                    "services": {
                        "x": {"image": "torchserve", "command": START, "environment": {}},
                        "y": {"image": "torchserve", "command": START.replace("a=a", "b=b")},
                    }
                }
            ),
            "x/a.mar": None,
            "y/b.mar": None,
        },
        "a b",
        "",
    ),
    "the nearest of equal names": (
        {
            "Dockerfile": "FROM node\nENV X=1\n",
            "ts/Dockerfile": f"FROM pytorch/torchserve\nCOPY config.properties .\nCMD {START}",
            "ts/config.properties": "job_queue_size=7",
            "config.properties": "job_queue_size=8",
            "ts/model-store/a.mar": None,
            "model-store/b.mar": None,
        },
        "a",
        "job_queue_size=7",
    ),
    "a config in a subfolder": (
        {"x/config.properties": "load_models=a.mar\njob_queue_size=7", "x/a.mar": None},
        "upper",
        "job_queue_size=7",
    ),
    "a CI workflow": (
        {"ci.yml": f"jobs:\n  a:\n    steps:\n    - run: |\n        {START} 2>&1 | tee log\n", "a.mar": None},
        "a",
        "",
    ),
    "Terraform": ({"main.tf": f"user_data = <<-EOF\n  #!/bin/bash\n  {START}\nEOF\n", "a.mar": None}, "a", ""),
    "a task of ECS": (
        {
            "task.json": json.dumps({"containerDefinitions": [{"image": "torchserve", "command": START.split()}]}),
            "data.json": "[" * 300_000,
            "a.mar": None,
        },
        "a",
        "",
    ),
    "Nomad": (
        {"x.nomad": f'config {{\n  args = ["{START.replace(" ", chr(34) + ", " + chr(34))}"]\n}}\n', "a.mar": None},
        "a",
        "",
    ),
    "PowerShell": ({"start.ps1": START.replace(" --models", " `\n  --models"), "a.mar": None}, "a", ""),
    "a store in a subfolder": ({"serve.py": "run('torchserve')", "s/a.mar": None}, "upper", ""),
    "a snapshot of a server": (
        {"20240102-startup.cfg": "load_models=a.mar\njob_queue_size=7", "a.mar": None},
        "upper",
        "job_queue_size=7",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_deployment_of_another_shape_is_moved(tmp_path, name):
    files, served, line = SHAPES[name]
    source = write(tmp_path / "old", {file: text or "" for file, text in files.items()})
    for file in (file for file, text in files.items() if text is None):
        shutil.copy(ARCHIVE, source / file)
    described = source / next(iter(files)) if name.startswith("a snapshot") else source
    found = migrate(described, tmp_path / "new")
    assert [word.partition("=")[0] for word in found["command"][2:] if "=./" in word] == served.split()
    config = tmp_path / "new" / "config.properties"
    assert line in (config.read_text() if config.exists() else "")


@pytest.mark.parametrize(
    ("image", "asks"),
    [("torchserve:0.9.0-cpu", 0), ("torchserve-kfs:0.11.0", 0), ("torchserve:0.11.1-gpu", 1), ("torchserve", 1)],
)
def test_tokens_need_no_decision_before_they_existed(tmp_path, image, asks):
    source = write(tmp_path / "old", {"Dockerfile": f"FROM pytorch/{image}\nCMD {START}"})
    names = [each.name for each in Deployment(source).settings if each.outcome == "needs a decision"]
    assert names == ["disable_token_authorization"] * asks


# --- Files outside the source


@pytest.mark.parametrize("named", ["config.properties", "docker-compose.yml", "Dockerfile", "start.sh"])
def test_archives_outside_the_source_need_a_config_or_a_volume(tmp_path, named):
    (tmp_path / "store").mkdir()
    shutil.copy(ARCHIVE, tmp_path / "store" / "a.mar")
    (tmp_path / "store" / "secret.txt").write_text(SECRET)
    texts = {
        "config.properties": f"model_store={tmp_path / 'store'}\nload_models=a.mar\n",
        "docker-compose.yml": f"services: {{a: {{image: torchserve, volumes: ['../store:/m'], command: '{START}'}}}}",
        "Dockerfile": f"FROM pytorch/torchserve\nCOPY ../store /m/\nCMD {START}".replace("model-store", "/m"),
        "start.sh": START.replace("model-store", str(tmp_path / "store")),
    }
    source = write(tmp_path / "old", {named: texts[named].replace("--model-store model-store", "--model-store /m")})
    is_allowed = named in {"config.properties", "docker-compose.yml"}
    found = migrate(source, tmp_path / "new", code=int(not is_allowed))
    assert [Path(each).name for each in found["outside"]] == ["a.mar"] * is_allowed
    assert (
        "a.mar" in (tmp_path / "new/MIGRATION.md").read_text().partition("## Settings")[0].partition("from outside")[2]
    ) == is_allowed
    assert [bool(model.get("project")) for model in found["models"]] == [is_allowed]


def test_links_out_of_the_source_are_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(ARCHIVE, tmp_path / "elsewhere" / "a.mar")
    source = write(tmp_path / "old", {"start.sh": START})
    (source / "model-store").symlink_to(tmp_path / "elsewhere")
    assert not migrate(source, tmp_path / "one", code=1)["models"][0].get("project")
    (source / "model-store").unlink()
    (source / "model-store").mkdir()
    (source / "model-store" / "a.mar").symlink_to(tmp_path / "elsewhere" / "a.mar")
    [model] = migrate(source, tmp_path / "two", code=1)["models"]
    assert (model["archive"], model.get("project")) == ("a.mar", None)


# --- Descriptions that are made to stop marpack

BOMBS = {
    "variables that double": "A=aaaaaaaaaa\n" + "A=$A$A\n" * 100 + f"{START} --ts-config $A\n",
    "a script that calls itself": f"bash start.sh\n{START}\nexec ./start.sh\n",
    "scripts without end": "cat << EOF > x\n" * 3000 + START,
    "words without end": ("/-" * 60_000) + "\n" + ("echo " * 20_000) + "\n" + ("'" * 9_999) + f"\n{START}\n",
    "blank lines": "\n" * 250_000 + START,
    "a text that is too large": f"{START}\n" + "#" * 100_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_hostile_script_ends(tmp_path, name):
    source = write(tmp_path / "old", {"start.sh": BOMBS[name]})
    with suppress(MarpackError):
        assert Deployment(source).kind == "start script"


ALIASES = {
    "lists": ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 40))],
    "texts": [f"a0: &a0 {'x' * 100_000}", f"a39: &a39 [{'*a0, ' * 30_000}]"],
}


@pytest.mark.parametrize("kind", ALIASES)
def test_aliases_of_yaml_are_not_expanded(tmp_path, kind):
    lines = [*ALIASES[kind], "services: {a: {image: torchserve, x: *a39}}"]
    source = write(tmp_path / "old", {"compose.yaml": "\n".join(lines)})
    assert invoke("migrate", str(source), "-o", str(tmp_path / "new"), code=2).cause == "not-a-deployment"


def test_other_services_leave_no_traces(tmp_path):
    """Only the service that runs TorchServe sets variables, volumes and settings."""
    services = {
        "web": {
            "image": "nginx",
            "environment": {"WEB": "1"},
            "depends_on": ["torchserve"],
            "volumes": ["./web:/models"],
        },
        "torchserve": {"image": "pytorch/torchserve", "command": START, "environment": {"MINE": "1"}},
    }
    source = write(tmp_path / "old", {"compose.yaml": json.dumps({"services": services}), "web/x.mar": ""})
    shutil.copy(ARCHIVE, source / "a.mar")
    deployment = Deployment(source)
    assert deployment.environment == {"MINE": "1"}
    assert [each.file for each in deployment.models] == ["a.mar"]
    (source / "compose.yaml").write_text(json.dumps({"services": {"web": services["web"] | {"depends_on": []}}}))
    write(source, {"Dockerfile": f"FROM pytorch/torchserve\nCMD {START}"})
    assert Deployment(source).environment == {}


def test_variables_without_a_value_are_not_exported(tmp_path):
    """Their values come from the host, or from a secret of Kubernetes."""
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}, {"name": "B", "value": "1"}]
    container = {"image": "pytorch/torchserve", "args": START.split(), "env": env, "ports": [{"containerPort": 80}]}
    services = {"image": "pytorch/torchserve", "command": START, "environment": {"A": None, "B": 1}}
    for text in ({"kind": "Pod", "spec": {"containers": [container]}}, {"services": {"x": services}}):
        deployment = Deployment(write(tmp_path, {"compose.yaml": json.dumps(text)}))
        assert deployment.environment == {"B": "1"}
        assert "A" in {each.name for each in deployment.settings if each.outcome == "needs a decision"}


def test_a_build_context_outside_the_source_is_refused(tmp_path):
    write(tmp_path, {"x.Dockerfile": f"FROM pytorch/torchserve\nENV A=1\nCMD {START}"})
    compose = "services: {a: {build: {context: .., dockerfile: x.Dockerfile}}}"
    source = write(tmp_path / "old", {"compose.yaml": compose}) / "compose.yaml"
    refused = invoke("migrate", str(source), "-o", str(tmp_path / "new"), code=2)
    assert (refused.cause, "outside" in str(refused.error)) == ("not-a-deployment", True)
    assert Deployment(tmp_path).environment == {"A": "1"}
