"""Imports, requirements, weights, labels and model configs."""

import pytest
from inspection.lint.case import BASE, CLASS, NET, Case, Members, check_case, told
from inspection.lint.content_cases import (
    CASES,
    CLASSIFIER,
    EAGER,
    SERIALIZED,
    configured,
    imports,
    labelled,
    required,
)
from inspection.lint.weights_files import weights

from marpack.archive.index import Vendored, VendoredPackage
from marpack.inspection.lint.linting import lint


def test_packages_that_it_brings_along_are_passed_over_but_nothing_that_the_manifest_names():
    case = imports("vendored", "import tokenizrs", files={"till/__init__.py": "import spellr"})
    claims = [("till",), ("till", "handler", "MAR-INF")]
    packages = [VendoredPackage(name="x", version="1", file="x", sha256="0" * 64, modules=each) for each in claims]
    known = [Vendored(python="3.9", platform="any", packages=(package,)) for package in packages]
    said = [told(lint(Members(case.members), case.manifest, vendored=each)) for each in known]
    assert said[0] == said[1] == ["W import-unlisted handler.py:1"]


def test_a_list_of_packages_hides_nothing_but_problems_inside_them():
    files = {"json.py": "import nowhere", "torch.py": "", "r.txt": "bad line !!", "index_to_name.json": "{"}
    case = imports("listed", "", files=files, model={"requirements_file": "r.txt"})
    listed = VendoredPackage(
        name="x", version="1", file="x", sha256="0" * 64, modules=("json", "torch", "r", "index_to_name")
    )
    vendored = Vendored(python="3.9", platform="any", packages=(listed,))
    found = told(lint(Members(case.members), case.manifest, vendored=vendored))
    assert found == told(lint(Members(case.members), case.manifest))
    assert len(found) >= 4


def test_an_included_address_is_not_read():
    found = told(required("elsewhere", "-r https://example.org/r.txt\n").findings())
    assert "N requirements-unnamed requirements.txt:1" in found


@pytest.mark.parametrize(
    ("options", "is_safe"),
    [
        ("{max_autotune: true, max_autotune_gemm_backends: 'ATEN,CPP'}", True),
        ("{cpp.cxx: ['true']}", False),
        ("{cpp.enable_floating_point_contract_flag: 'off -wrapper true'}", False),
    ],
)
@pytest.mark.parametrize("pt2", ["pt2: {options: OPTIONS}", "pt2: {compile: {enable: true, options: OPTIONS}}"])
def test_options_that_run_programs_are_errors(options, is_safe, pt2):
    found = told(configured("options", pt2.replace("OPTIONS", options)).findings())
    assert any(finding.startswith("E pt2-option ") for finding in found) is not is_safe


@pytest.mark.parametrize("folder", ["a-1.0.dist-info", "A.Egg-Info", "a.egg/EGG-INFO"])
@pytest.mark.parametrize(
    ("text", "is_plugin"),
    [
        ("[console_scripts]\na = a:b\n", False),
        (" [torch.backends]\na = a:b\n", True),
        ("[gui_scripts]\r[torch.backends]\ra = a:b", True),
        ("#" * 70_000, True),
        ("", False),
    ],
)
def test_plugins_of_packages_are_reported(folder, text, is_plugin):
    found = told(imports("plugin", "", files={f"{folder}/entry_points.txt": text, "a.py": ""}).findings())
    assert found == [f"W module-shadows {folder}/entry_points.txt"] * is_plugin


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize/__init__.py"])
def test_a_module_that_every_python_runs_is_reported(name):
    assert told(imports("start", "", files={name: ""}).findings()) == [f"W module-shadows {name}"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_finds_exactly(case):
    check_case(case)


# A case → values that its one message must contain.
FACTS = [
    (labelled("gaps", '{"0": "a", "4": "c"}'), ["class 1 ", "2 more"]),
    (labelled("no-indices", '{"a": "x", "1": "y", "b": "z"}'), ["'a'", "1 more"]),
    (labelled("twins-twice", '{"0": "a", "1": "a", "2": "a", "3": "b", "4": "b"}'), ["3 classes", "1 more"]),
    (labelled("wrong", '{"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}'), ["2 more"]),
    (labelled("one", '{"0": "a"}', handler=CLASSIFIER), ["1 label,", "5"]),
    (labelled("too-large", '{"0": "' + "a" * (16 << 20) + '"}'), ["16 MiB"]),
    (imports("elsewhere", "import net", files={"src/net.py": ""}), ["'net'", "src/net.py"]),
    (imports("two-dots", "from ..net import x"), ["'..net'", "handler.py"]),
    (required("folder", "-e ./lib\n"), ["'./lib'"]),
]


@pytest.mark.parametrize(("case", "facts"), [pytest.param(*row, id=row[0].name) for row in FACTS])
def test_a_message_names_the_values(case, facts):
    assert [finding for finding in case.findings() if all(fact in finding.message for fact in facts)]


# A case → what a hint must contain.
HINTS = [
    (configured("spelling", "batch_size: 1\n"), "batchSize"),
    (configured("torchrun", "torchrun: {nproc_per_node: 2}\n"), "nproc-per-node"),
    (imports("name", "from net import Nett", files={"net.py": "Net = 1"}), "Net?"),
    (imports("module", "import labeling", files={"labelling.py": ""}), "labelling"),
    (imports("handler", "from base_handler import BaseHandler"), "ts.torch_handler.base_handler"),
    (imports("home", "from ts.context import BaseHandler"), "ts.torch_handler.base_handler"),
    (imports("server", "from ts.context import Contex"), "Context"),
    (Case("script", {"handler.py": BASE, "model.py": NET, "model.pt": weights("script")}, model=EAGER), "--model-file"),
    (Case("suffix", {"handler.py": BASE, "model.pt": weights("onnx")}, model=SERIALIZED), ".onnx"),
    (imports("listing", "import cv2"), "List opencv-python in"),
    (imports("listing-unknown", "import my_thing"), "pack it"),
    (required("listing-more", "timm\n", handler__py=f"import mii\n{CLASS}"), "Add deepspeed-mii to requirements.txt"),
    (required("listing-may-do", "py-thing\n", handler__py=f"import thing\n{CLASS}"), "add its distribution"),
    (imports("distribution", "import transformers", files={"transformer.py": ""}), "List transformers in"),
]


@pytest.mark.parametrize(("case", "part"), [pytest.param(*row, id=row[0].name) for row in HINTS])
def test_hints_at_what_was_meant(case, part):
    assert [finding for finding in case.findings() if part in str(finding.hint)]


def test_a_missing_module_is_told_of_once_where_it_weighs_most():
    source = "def later():\n    import timm\nimport timm.data\nfrom timm import create\nimport model\nimport model"
    assert told(imports("twice", source).findings()) == [
        "E import-not-packed handler.py:5", "W import-unlisted handler.py:3"
    ]  # fmt: skip
    assert told(imports("package", "import pkg.a\nimport pkg.a", files={"pkg/__init__.py": ""}).findings()) == [
        "E import-submodule-missing handler.py:1"
    ]


FLATTENED = [
    (imports("package", "from pkg.mod import X", files={"__init__.py": "", "mod.py": ""}), "warning", "mod.py"),
    (imports("module", "from pkg import mod", files={"mod.py": ""}), "warning", "mod.py"),
    (imports("deferred", "def f():\n    import pkg.mod", files={"mod.py": ""}), "warning", "mod.py"),
    (imports("homely", "from utils.mod import X", files={"mod.py": ""}), "error", "mod.py"),
    (imports("homely package", "import utils", files={"__init__.py": ""}), "error", "__init__.py"),
]


@pytest.mark.parametrize(("case", "severity", "member"), [pytest.param(*row, id=row[0].name) for row in FLATTENED])
def test_a_folder_whose_contents_alone_are_packed_is_recognized(case, severity, member):
    [finding] = case.findings()
    assert (finding.code, finding.severity) == ("import-not-packed", severity)
    assert f" {member} " in finding.message
    assert "mkdir parts && cp -r" in str(finding.hint)


def test_a_file_at_the_root_is_no_part_of_a_package_that_has_it_too():
    for source in ("import timm.mod", "import pkg.handler", "import pkg.other", "import pkg", "from pkg import X"):
        found = told(imports("others", source, files={"mod.py": "", "__init__.py": ""}).findings())
        assert found == ["W import-unlisted handler.py:1"]


def test_what_is_listed_under_another_name_is_no_missing_module():
    listed = required("names", "llama-cpp-python\nlru-dict\nimport-linter\n",
                      handler__py=f"import llama_cpp, lru\nimport importlinter\n{CLASS}")  # fmt: skip
    assert [finding.code for finding in listed.findings()] == ["requirements-need-setting"]


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ('{"learner": 1}', "weights-absent", "XGBoost"),
        ("[1]", "weights-absent", "JSON"),
        ("{ \x00", "weights-unknown", ""),
    ],
)
def test_json_in_the_weights_place_is_a_model_of_another_kind(text, code, fact):
    files = {"handler.py": BASE, "model.pt": text}
    [finding] = Case("json", files, model=SERIALIZED).findings()
    assert finding.code == code
    assert fact in finding.message
    own = {"handler.py": CLASS, "model.pt": text}
    found = [finding.code for finding in Case("json", own, model=SERIALIZED).findings()]
    assert found == ([code] if "\x00" in text else [])


def test_torchtext_is_no_part_of_the_last_server():
    assert told(imports("torchtext", "import torchtext").findings()) == ["W import-unlisted handler.py:1"]


def test_the_first_places_of_many_are_told_each():
    config = configured("twice", "".join(f"k{number}: 1\n" * 2 for number in range(25)))
    assert len([line for line in told(config.findings()) if "config-duplicate-key" in line]) == 20
    text = "{" + ", ".join(f'"{number}": "a{number}", "{number}": "a{number}"' for number in range(15)) + "}"
    assert len([line for line in told(labelled("twice", text).findings()) if "labels-duplicate-key" in line]) == 10


NO_CONFIG = "def handle(data, context):\n    {}\n    return data\n"


@pytest.mark.parametrize(
    ("line", "config", "code"),
    [
        ("size = context.model_yaml_config['handler']['size']", None, "config-key-missing"),
        ("config = context.model_yaml_config; size = config['handler']", None, "config-key-missing"),
        ("size = context.model_yaml_config['handler']", "minWorkers: 1\n", "config-key-missing"),
        ("size = context.model_yaml_config['handler']", "handler: {size: 1}\n", None),
        ("size = context.model_yaml_config.get('handler')", None, None),
        ("size = 'handler' in context.model_yaml_config and context.model_yaml_config['handler']", None, None),
        ("try: size = context.model_yaml_config['handler']\n    except KeyError: pass", None, None),
        ("context.model_yaml_config['handler'] = 1", None, None),
        ("file = context.manifest['model']['modelFile']", None, "manifest-key-missing"),
        ("model = context.manifest['model']; file = model['serializedFile']", None, "manifest-key-missing"),
        (
            "a = context.manifest['model']['modelFile'] + context.manifest['model']['modelFile']",
            None,
            "manifest-key-missing",
        ),
        ("file = context.manifest['model'].get('modelFile')", None, None),
        ("name = context.manifest['model']['modelName']", None, None),
        ("other = context['handler']", None, None),
    ],
)
def test_what_the_handler_reads_and_nobody_packed_is_told(line, config, code):
    files = {"handler.py": NO_CONFIG.format(line)} | ({"c.yaml": config} if config else {})
    found = Case("lookup", files, model={"config_file": "c.yaml"} if config else {}).findings()
    assert [finding.code for finding in found] == ([code] if code else [])
    assert [finding.where for finding in found] == (["handler.py:2"] if code else [])
