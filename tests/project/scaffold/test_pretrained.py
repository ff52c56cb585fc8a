"""The facts that `init` reads of a Hugging Face folder, without transformers: its task, its files, and each mistake."""

import ast
import json
import pickle
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from marpack.errors import UsageError
from marpack.project.scaffold.folder_scan import scan_folder
from marpack.project.scaffold.pretrained import PretrainedModel
from marpack.project.scaffold.proposal import Answers, Proposal, assemble, propose

DEEP = '{"deep": ' + "[" * 100_000 + "]" * 100_000 + "}"
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "max_position_embeddings": 512}
TOKENIZER = {"tokenizer_class": "BertTokenizer", "model_max_length": 256, "mask_token": {"content": "<mask>"}}


def save_weights(path: Path) -> None:
    import numpy as np

    save_file({"layer.weight": np.ones((2, 3), "float32")}, path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model, as far as names and JSON go."""
    for name, content in {"config.json": BERT, "tokenizer_config.json": TOKENIZER, "tokenizer.json": {}}.items():
        (tmp_path / name).write_text(json.dumps(content))
    save_weights(tmp_path / "model.safetensors")
    return tmp_path


def change(folder: Path, name: str = "config.json", **keys: object) -> None:
    path = folder / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | keys))


def proposed(folder: Path, **answers: object) -> Proposal:
    return propose(folder, scan_folder(folder), Answers(**answers))


def read(folder: Path, **answers: object) -> PretrainedModel:
    model = proposed(folder, **answers).pretrained
    assert model is not None
    return model


def refusal(folder: Path, **answers: object) -> str:
    with pytest.raises(UsageError) as caught:
        proposed(folder, **answers)
    return caught.value.code


def found(model: PretrainedModel) -> list[str]:
    return [finding.code for finding in model.findings if finding.code != "package-not-installed"]


@pytest.mark.parametrize(
    ("architecture", "tag", "task", "auto_class"),
    [
        ("BertForMaskedLM", None, "fill-mask", "AutoModelForMaskedLM"),
        ("BertForMaskedLM", "sentence-similarity", "feature-extraction", "AutoModel"),
        ("BertForMaskedLM", "text-classification", "fill-mask", "AutoModelForMaskedLM"),  # it has no such head
        ("GPT2LMHeadModel", "text-generation", "text-generation", "AutoModelForCausalLM"),
        ("LlamaForCausalLM", None, "text-generation", "AutoModelForCausalLM"),
        ("XLMRobertaModel", None, "feature-extraction", "AutoModel"),
        ("T5EncoderModel", None, "feature-extraction", "AutoModelForTextEncoding"),
        ("RobertaForSequenceClassification", None, "text-classification", "AutoModelForSequenceClassification"),
        ("OurOwn", "question-answering", "question-answering", "AutoModelForQuestionAnswering"),
    ],
)
def test_the_task_is_that_of_the_tag_if_the_architecture_has_a_head_for_it(folder, architecture, tag, task, auto_class):
    change(folder, architectures=[architecture])
    if tag:
        (folder / "README.md").write_text(f"---\nlicense: mit\npipeline_tag: {tag}\n---\n# Model\n")
    model = read(folder)
    assert (model.head.task, model.head.auto_class) == (task, auto_class)


def test_an_author_may_choose_another_task_that_the_model_can_do(folder):
    assert read(folder, task="feature-extraction").head.task == "feature-extraction"
    assert refusal(folder, task="question-answering") == "wrong-task"


@pytest.mark.parametrize(
    "architecture",
    [
        *("T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel", "MarianMTModel"),
        *("CLIPModel", "VisionEncoderDecoderModel"),
    ],
)
def test_a_model_that_init_has_no_handler_for_is_refused(folder, architecture):
    change(folder, architectures=[architecture])
    assert refusal(folder) == "unknown-task"
    assert proposed(folder, template="custom").template.name == "custom"


def test_a_model_for_text_that_also_needs_a_processor_is_refused(folder):
    change(folder, architectures=["Wav2Vec2ForSequenceClassification"])
    (folder / "preprocessor_config.json").write_text("{}")
    assert refusal(folder) == "unknown-task"


@pytest.mark.parametrize("samples", [True, False, None])
def test_texts_that_are_sampled_need_not_repeat(folder, samples):
    change(folder, architectures=["LlamaForCausalLM"])
    change(folder, "generation_config.json", do_sample=samples)
    assert (b"repeatable: warning" in assemble(proposed(folder), print)["marpack.yaml"]) == bool(samples)


@pytest.mark.parametrize(
    ("problem", "labels", "activation"),
    [(None, 3, "softmax"), (None, 1, "sigmoid"), ("multi_label_classification", 3, "sigmoid"), ("regression", 1, "")],
)
def test_scores_are_made_as_transformers_makes_them(folder, problem, labels, activation):
    keys = {"problem_type": problem, "id2label": {str(each): "x" for each in range(labels)}}
    change(folder, architectures=["BertForSequenceClassification"], **keys)
    assert read(folder).activation == activation


@pytest.mark.parametrize(
    ("keys", "limit", "tokens"),
    [
        ({}, 256, 256),
        ({"max_position_embeddings": 128}, 256, 128),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 10**30, 512),
        ({"max_position_embeddings": None}, None, 512),
    ],
)
def test_a_text_is_cut_at_the_models_positions(folder, keys, limit, tokens):
    change(folder, **keys)
    change(folder, "tokenizer_config.json", model_max_length=limit)
    assert read(folder).max_tokens == tokens


def write_modules(folder: Path, *kinds: str, **pooling: object) -> None:
    rows = [{"type": f"sentence_transformers.models.{kind}", "path": f"{i}_{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
    ("pooling", "poolings"),
    [
        ({"pooling_mode_cls_token": True, "include_prompt": True}, ("cls",)),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, ("max", "mean")),
        ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
    ],
)
def test_sentences_are_pooled_as_the_modules_say(folder, pooling, poolings):
    write_modules(folder, "Transformer", "Pooling", "Normalize", **pooling)
    change(folder, "sentence_bert_config.json", max_seq_length=128)
    model = read(folder)
    assert (model.head.task, model.poolings, model.normalized) == ("feature-extraction", poolings, True)
    assert model.max_tokens == 128
    compile(assemble(proposed(folder), print)["handler.py"], "handler.py", "exec")


@pytest.mark.parametrize(
    ("kinds", "pooling"),
    [
        (("Transformer", "Pooling", "Dense"), {"pooling_mode_cls_token": True}),
        (("Transformer", "Pooling", "cls"), {"pooling_mode_cls_token": True}),
        (("Transformer", "Pooling"), {"pooling_mode_weightedmean_tokens": True}),
        (("Transformer", "Pooling"), {}),
    ],
)
def test_a_module_that_the_handler_would_leave_out_is_refused(folder, kinds, pooling):
    write_modules(folder, *kinds, **pooling)
    assert refusal(folder) == "unknown-module"


@pytest.mark.parametrize(("name", "prompt"), [("query", 'find "x": '), ("document", ""), (None, "")])
def test_the_default_prompt_is_put_before_every_text(folder, name, prompt):
    write_modules(folder, "Transformer", "Pooling", pooling_mode="mean")
    settings = {"prompts": {"query": 'find "x": '}, "default_prompt_name": name}
    change(folder, "config_sentence_transformers.json", **settings)
    made = assemble(proposed(folder), print)["handler.py"].decode()
    assert read(folder).prompt == prompt
    assert ("PROMPT + read_text" in made, f"PROMPT = {json.dumps(prompt)}" in made) == (bool(prompt), bool(prompt))
    compile(made, "handler.py", "exec")


def test_a_pooling_outside_the_folder_is_not_read(folder):
    write_modules(folder, "Transformer", "Pooling", pooling_mode_cls_token=True)
    (folder / "1_Pooling").rename(folder.parent / "elsewhere")
    rows = json.loads((folder / "modules.json").read_text())
    for place in ("../elsewhere", str(folder.parent / "elsewhere")):
        rows[1]["path"] = place
        (folder / "modules.json").write_text(json.dumps(rows))
        assert refusal(folder) == "unknown-module"


def test_without_modules_the_mean_is_taken(folder):
    model = read(folder, task="feature-extraction")
    assert (model.poolings, model.normalized) == (("mean",), False)


def test_a_mask_is_written_as_the_tokenizer_spells_it(folder):
    expected = {"samples/stand-in.txt": b"The cat sat on the <mask>.\n"}
    assert proposed(folder).samples.brought == expected
    change(folder, "tokenizer_config.json", mask_token=None)
    assert proposed(folder).samples.brought != expected
    change(folder, model_type="xlm-roberta")
    assert proposed(folder).samples.brought == expected


def test_a_request_without_one_text_is_refused(folder):
    """Without this check, the tokenizer takes a list of two texts for a pair, and responds."""
    tree = ast.parse(assemble(proposed(folder), print)["handler.py"])
    names = {"read_text": None}
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names)
    exec(compile(ast.Module([function], []), "handler.py", "exec"), names)
    bodies = (b"dog", "dog", {"inputs": "dog"})
    assert {names["read_text"]({"body": body}) for body in bodies} == {"dog"}
    for body in (["a", "b"], {"inputs": ["a", "b"]}, {"text": "a"}, 1):
        with pytest.raises(TypeError):
            names["read_text"]({"data": body})


def shard(folder: Path, *names: str) -> None:
    (folder / "model.safetensors").unlink()
    names = names or ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    for name in names:
        save_weights(folder / name)
    places = {f"layer.{index}": f"model-0000{index}-of-00002.safetensors" for index in (1, 2)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def test_all_shards_are_packed(folder):
    shard(folder)
    model = read(folder)
    shards = {"model.safetensors.index.json", *(f"model-0000{index}-of-00002.safetensors" for index in (1, 2))}
    assert model.weights is None
    assert shards <= set(model.members)
    assert found(model) == ["task-chosen"]


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "model-00002-of-00002.safetensors"])
def test_a_shard_that_is_not_in_the_folder_is_missing(folder, place):
    save_weights(folder.parent / "outside.safetensors")
    shard(folder, "model-00001-of-00002.safetensors")
    places = {"a": "model-00001-of-00002.safetensors", "b": place}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert refusal(folder) == "missing-shards"


@pytest.mark.parametrize("index", ["[]", DEEP, '{"weight_map": {}}', '{"weight_map": [1]}', "not JSON"])
def test_an_index_that_lists_no_shards_is_refused(folder, index):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text(index)
    assert refusal(folder) == "missing-shards"


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    assert refusal(folder) == "no-weights"
    (folder / "model.fp16.safetensors").unlink()
    assert refusal(folder) == "no-weights"
    (folder / "model.safetensors").symlink_to(folder / "missing")  # as in a cache that was cleared
    assert refusal(folder) == "no-weights"


@pytest.mark.parametrize("name", ["adapter_config.json", "model_index.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("has_config", [True, False])
def test_a_model_that_transformers_does_not_load_alone_is_refused(folder, name, has_config):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    assert proposed(folder).pretrained
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    if not has_config:
        (folder / "config.json").unlink()
    assert refusal(folder) == "no-weights"
    assert proposed(folder, weights="adapter_model.safetensors").pretrained is None


def test_a_folder_without_config_json_is_refused(folder):
    (folder / "config.json").rename(folder / "other.json")
    assert refusal(folder) == "no-config"


@pytest.mark.parametrize(
    "content",
    [b"", b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", b"\x80\x04N."],
)
def test_a_file_that_only_has_the_name_of_weights_is_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert refusal(folder) == "invalid-model-file"


def test_weights_that_end_too_early_are_refused(folder):
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1])
    assert refusal(folder) == "invalid-model-file"


def test_weights_that_call_code_are_refused_and_not_loaded(folder, tmp_path):
    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "pwned",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Attack()}))
    assert refusal(folder) == "invalid-model-file"
    assert not (tmp_path / "pwned").exists()


def test_a_folder_without_tokenizer_or_processor_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    assert refusal(folder) == "no-tokenizer"
    (folder / "tokenizer_config.json").unlink()
    assert refusal(folder) == "no-tokenizer"
    change(folder, architectures=["ViTForImageClassification"])
    assert refusal(folder) == "no-tokenizer"


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["{", "[]", '{"architectures": 1, "tokenizer_class": 1}', "[" * 100_000, DEEP])
def test_settings_that_are_not_valid_are_refused(folder, name, content):
    (folder / name).write_text(content)
    assert refusal(folder) == "invalid-model-file"


def test_code_of_the_model_is_run_only_on_request(folder):
    (folder / "modeling_own.py").write_text("raise SystemExit('this code was run')\n")
    change(folder, auto_map={"AutoModel": "modeling_own.OwnModel"})
    assert found(read(folder)) == ["task-chosen", "remote-code", "left-out"]
    assert b"trust_remote_code" not in assemble(proposed(folder), print)["handler.py"]
    (folder / "test_model.py").touch()  # as an earlier init writes it
    trusting = proposed(folder, trust_remote_code=True)
    assert found(trusting.pretrained) == ["task-chosen", "remote-code"]
    assert {name for name in trusting.files if name.endswith(".py")} == {"modeling_own.py"}
    assert read(folder, task="text-classification").head.task == "text-classification"  # its code may have such a head
    (folder / "modeling_own.py").rename(folder / "other.py")
    assert refusal(folder, trust_remote_code=True) == "no-model-code"
    change(folder, auto_map={"AutoModel": ["org/repository--other.OwnModel", None]})
    assert refusal(folder, trust_remote_code=True) == "no-model-code"
    assert b"local_files_only=True, trust_remote_code=True" in assemble(trusting, print)["handler.py"]


@pytest.mark.parametrize(
    ("tokenizer", "vocabulary", "packages"),
    [("T5Tokenizer", "spiece.model", ["protobuf", "sentencepiece"]), ("FSMTTokenizer", "vocab.json", ["sacremoses"])],
)
def test_the_package_of_a_tokenizer_is_required(folder, tokenizer, vocabulary, packages):
    (folder / "tokenizer.json").unlink()
    (folder / vocabulary).write_bytes(b"{}")
    change(folder, "tokenizer_config.json", tokenizer_class=tokenizer)
    model = read(folder)
    assert [line.partition("==")[0] for line in model.requirements] == ["transformers", *packages]
    assert "package-not-installed" in [finding.code for finding in model.findings]


@pytest.mark.parametrize(
    ("method", "packages"),
    [("bitsandbytes", ["accelerate", "bitsandbytes"]), ("unknown", []), (["gptq"], []), (None, [])],
)
def test_the_packages_of_quantized_weights_are_required(folder, method, packages):
    change(folder, quantization_config={"quant_method": method} if method else None)
    assert [line.partition("==")[0] for line in read(folder).requirements] == ["transformers", *packages]


@pytest.mark.parametrize(
    "readme",
    [b"---\na: [\n---\n", b"\xff\n", b"---\nlicense: mit\n---\npipeline_tag: question-answering\n", b"---\n" * 99_999],
)
def test_a_readme_without_a_readable_tag_is_ignored(folder, readme):
    (folder / "README.md").write_bytes(readme)
    assert read(folder).head.task == "fill-mask"


@pytest.mark.parametrize("answers", [{"task": "fill-mask"}, {"trust_remote_code": True}])
def test_options_for_hugging_face_models_need_one(tmp_path, answers):
    assert refusal(tmp_path, **answers) == "no-hugging-face"


def test_another_config_json_is_no_model(folder):
    change(folder, architectures=None, model_type=None)
    assert proposed(folder).pretrained is None


OWN = """
from transformers import AutoTokenizer
from ts.torch_handler.base_handler import BaseHandler


class Handler(BaseHandler):
    def initialize(self, context):
        folder = context.system_properties["model_dir"]
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.initialized = True
"""


def test_an_own_handler_gets_the_files_that_it_loads(folder):
    (folder / "handler.py").write_text(OWN)
    (folder / "pytorch_model.bin").write_bytes(b"x")
    proposal = proposed(folder)
    assert (proposal.pretrained, proposal.weights) == (None, "model.safetensors")
    assert set(proposal.files) == {"config.json", "tokenizer.json", "tokenizer_config.json"}


ENDPOINT = """
from transformers import pipeline


class EndpointHandler:
    def __init__(self, path=""):
        self.pipeline = pipeline("fill-mask", model=path)

    def __call__(self, data):
        return self.pipeline(data["inputs"])
"""


def test_a_handler_of_inference_endpoints_is_called_by_a_generated_one(folder):
    (folder / "handler.py").write_text(ENDPOINT)
    proposal = proposed(folder)
    assert (proposal.handler, proposal.weights) == ("endpoint_handler.py", "model.safetensors")
    assert set(proposal.files) == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    made = assemble(proposal, print)
    assert "handler.py" not in made
    assert b"from handler import EndpointHandler" in made["endpoint_handler.py"]
    (folder / "endpoint_handler.py").write_bytes(made["endpoint_handler.py"])
    assert proposed(folder).handler == "endpoint_handler.py"
