"""Every finding code of marpack: its severity, its messages and its hint.

`Code.at` makes a finding of a row. `docs/findings.md` is printed from this table, and from the explanations in
`tools/reference/findings.yaml`.
"""

from marpack.findings import Code, Severity

_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

# fmt: off

# Content of an archive -----------------------------------------------------------------------------------------------

_COPY_AGAIN = "Copy or download the archive again, or build it again."
DAMAGED_MEMBER = Code(
    "damaged-member", _ERROR, "the member cannot be read: {reason}",
    _COPY_AGAIN,
)
DIGEST_MISMATCH = Code(
    "digest-mismatch", _ERROR, "the SHA-256 is {found}, MAR-INF/marpack.json says {recorded}",
    _COPY_AGAIN,
)
SIZE_MISMATCH = DIGEST_MISMATCH.saying("the member has {found:,} bytes, MAR-INF/marpack.json says {recorded:,}")
UNLISTED_MEMBER = Code(
    "unlisted-member", _ERROR, "MAR-INF/marpack.json does not list this member",
    _COPY_AGAIN,
)
INDEX_UNREADABLE = UNLISTED_MEMBER.saying("the list of members is not valid: {reason}")
MISSING_MEMBER = Code(
    "missing-member", _ERROR, "MAR-INF/marpack.json lists {name}, which is not in the archive",
    _COPY_AGAIN,
)
_REBUILD = "Build it again: marpack unpack it, then marpack build."
ARCHIVE_SUFFIX = Code(
    "archive-suffix", _ERROR,
    "this is {form}; the server reads a .mar as a zip, and any other file as a .tar.gz",
    "Rename the archive.",
)
MAR_ROOT_FOLDER = Code(
    "mar-root-folder", _ERROR,
    "all members are in the folder {folder}; the server looks for MAR-INF/MANIFEST.json at the top",
    _REBUILD,
)
TGZ_NO_ROOT_FOLDER = Code(
    "tgz-no-root-folder", _ERROR,
    "the members are at the top; in a .tar.gz the server drops the first folder of each name",
    _REBUILD,
)
SAGEMAKER_LAYOUT = Code(
    "sagemaker-layout", _NOTE,
    "the layout is SageMaker's: marpack adds a manifest and a handler that calls code/inference.py",
    "To serve it with TorchServe, turn it into a project: marpack init --from.",
)
ZIP64_STREAMED = Code(
    "zip64-streamed", _ERROR, "the sizes of {names} follow the data in zip64 form, which the server refuses",
    _REBUILD,
)
_PLAIN_VALUES = "Write plain values and build the archive again: marpack build."
LABELS_UNREADABLE = Code(
    "labels-unreadable", _ERROR, "the labels cannot be read: {reason}",
    _PLAIN_VALUES,
)
CONFIG_HOSTILE = Code(
    "config-hostile", _ERROR, "the model config is refused: {reason}",
    _PLAIN_VALUES,
)
PROGRAM = Code(
    "program", _NOTE, "{count}, which marpack cannot judge: {names}",
    "Load it only if you trust its author.",
)

# Manifest ------------------------------------------------------------------------------------------------------------

MODEL_NAME = Code(
    "model-name", _WARNING, "'{name}' is not a model name",
    "Use letters, digits, '_', '-' and '.', beginning with a letter or digit.",
)
MODEL_NAME_UNREACHABLE = Code(
    "model-name", _ERROR, "'{name}' is not a model name: no address reaches it",
    MODEL_NAME.hint,
)
RUNTIME_UNKNOWN = Code(
    "runtime-unknown", _ERROR, "the server does not know the runtime '{name}'",
    "Set the runtime to python.",
)
RUNTIME_LSP = Code(
    "runtime-lsp", _WARNING, "the runtime LSP needs a server built with the C++ backend",
    "Set the runtime to python, or use a server with the C++ backend.",
)
ENVELOPE_IGNORED = Code(
    "envelope-ignored", _NOTE, "the server does not read the envelope '{name}' from the manifest",
    "Set service_envelope in the server's config.properties.",
)
ENVELOPE_UNKNOWN = Code(
    "envelope-unknown", _WARNING, "TorchServe has no envelope '{name}'",
    "Use body, json, kserve or kservev2.",
)

# Members -------------------------------------------------------------------------------------------------------------

MEMBER_UNREADABLE = Code(
    "member-unreadable", _ERROR, "the file cannot be read: {reason}",
    "Check the file's permissions, or build the archive again.",
)
SOURCES_TOO_LARGE = Code(
    "sources-too-large", _NOTE, "not every packed module was checked",
    "Pack only the modules that the handler needs.",
)
SOURCE_SYNTAX = Code(
    "source-syntax", _ERROR, "the file is not valid Python: {reason}",
    "Correct the line. `python -m py_compile FILE` shows the same error.",
)
SOURCE_UNCHECKED = Code(
    "source-unchecked", _NOTE, "not checked: {reason}",
    "Check it by running it: marpack run.",
)
CHECK_GAVE_UP = Code(
    "check-gave-up", _NOTE, "a check could not be finished",
    "Check it by running it: marpack run.",
)

# Handler -------------------------------------------------------------------------------------------------------------

HANDLER_MISSING = Code(
    "handler-missing", _ERROR, "'{name}' is neither in the archive nor a built-in handler",
    "Pack the file at the archive's root, or name a built-in handler.",
)
HANDLER_UNNAMED = HANDLER_MISSING.saying("the manifest does not name a handler")
HANDLER_ELSEWHERE = HANDLER_MISSING.saying(
    "'{name}' is packed as {place}, where the server does not look", "Pack it at the archive's root."
)
HANDLER_FOLDER = HANDLER_MISSING.saying("'{name}' is a folder without __init__.py, which contains no handler")
HANDLER_UNKNOWN = Code(
    "handler-unknown", _WARNING, "'{name}' is not packed, and works only where it is installed",
    "Pack the module, or name a built-in handler.",
)
HANDLER_FILE_NAME = Code(
    "handler-file-name", _ERROR, "'{name}' cannot be imported: its name has a dot before .py",
    "Rename the file to a plain name such as handler.py.",
)
HANDLER_SHADOWS = Code(
    "handler-shadows-built-in", _NOTE, "the module replaces the built-in {name}",
    "To use the built-in, rename the module.",
)
HANDLER_NEVER_FOUND = Code(
    "handler-never-found", _ERROR, "the server imports Python's own module '{module}' instead",
    "Rename the file to a plain name such as handler.py.",
)
HANDLER_NOT_A_HANDLER = Code(
    "handler-not-a-handler", _ERROR, "'{name}' is a module of the server that contains no handler",
    "Name a built-in handler, or a packed file.",
)
HANDLER_NEEDS_ENGINE = Code(
    "handler-needs-engine", _NOTE, "the built-in {name} needs {needed}, which a stock server does not have",
    "List the package in requirements.txt, or use a server image that has it.",
)
HANDLER_NO_ENTRY = Code(
    "handler-no-entry", _ERROR, "the handler has neither a function 'handle' nor a class of its own",
    "Define `handle(data, context)`, or one class with `initialize` and `handle`.",
)
HANDLER_ONLY_IMPORTED = HANDLER_NO_ENTRY.saying(
    "the handler has neither a function 'handle' nor a class of its own; the imported {name} does not count"
)
HANDLER_NO_FUNCTION = HANDLER_NO_ENTRY.saying("the function '{name}' does not exist")
HANDLER_MANY_CLASSES = Code(
    "handler-many-classes", _ERROR,
    "the handler has {count} classes of its own ({names}) where the server wants exactly one, and no 'handle'",
    "Move the other classes into another module: imported classes do not count.",
)
HANDLER_FUNCTION_MISSING = Code(
    "handler-function-missing", _WARNING,
    "the function '{name}' does not exist; the server uses the module's one class instead",
    "Name a function of the module, or leave the colon out.",
)
HANDLER_NOT_CALLABLE = Code(
    "handler-not-callable", _ERROR, "'{name}' is not a function, and the server calls it with None and the context",
    "Define a function `handle(data, context)`.",
)
HANDLER_CLASS_NOT_CALLABLE = HANDLER_NOT_CALLABLE.saying(
    "'{name}' is a class, and the server calls it as a function with None and the context"
)
HANDLER_ASYNC = Code(
    "handler-async", _ERROR, "'{name}' is async, and its coroutine is not a list",
    "Make it a plain function, or set `asyncCommunication: true`.",
)
HANDLER_BUILT_IN_ASYNC = HANDLER_ASYNC.saying(
    "the built-in {name} is async, and the model config does not set asyncCommunication"
)
HANDLER_NOT_ASYNC = Code(
    "handler-not-async", _ERROR, "'{name}' is not async, but the model config sets asyncCommunication",
    "Make `handle` an async function, or remove asyncCommunication from the model config.",
)
HANDLER_BUILT_IN_NOT_ASYNC = HANDLER_NOT_ASYNC.saying(
    "the built-in {name} is not async, but the model config sets asyncCommunication"
)
HANDLER_INHERITED_NOT_ASYNC = HANDLER_NOT_ASYNC.saying(
    "the inherited 'handle' is not async, but the model config sets asyncCommunication"
)
HANDLER_GENERATOR = Code(
    "handler-generator", _ERROR, "'{name}' yields, so it returns a generator where the server wants a list",
    "Return a list with one element per request. To stream, use send_intermediate_predict_response.",
)
HANDLER_RETURNS_NOTHING = Code(
    "handler-returns-nothing", _ERROR, "'{name}' never returns a value",
    "Return a list with one element per request.",
)
HANDLER_RETURNS_NO_LIST = Code(
    "handler-returns-no-list", _WARNING, "'{name}' returns {kind} here, not a list",
    "Return a list with one element per request: `return [answer]`.",
)
HANDLER_METHOD_MISSING = Code(
    "handler-method-missing", _ERROR, "the class {cls} has no method '{name}'",
    "Define the method, or derive the class from ts.torch_handler.base_handler.BaseHandler.",
)
HANDLER_SIGNATURE = Code(
    "handler-signature", _ERROR, "the server calls '{name}' with {arguments}, but it {reason}",
    "Give it the parameters that the server passes.",
)
HANDLER_STAGE = Code(
    "handler-stage", _ERROR, "BaseHandler's handle calls '{name}' with one argument, but it {reason}",
    "Take one argument (the context is self.context), or override `handle` too.",
)
HANDLER_STAGE_ASYNC = HANDLER_STAGE.saying("'{name}' is async, and BaseHandler's handle does not await it")
HANDLER_BASE_UNKNOWN = Code(
    "handler-base-unknown", _NOTE, "{cls} inherits from {base}, which is not packed; its methods were not checked",
    "Pack the base class's module if the server does not have it.",
)
HANDLER_SKIPS_INITIALIZE = Code(
    "handler-skips-initialize", _WARNING, "'initialize' does not call BaseHandler's, so self.{name} is not set here",
    "Begin with super().initialize(context), or set the attribute yourself.",
)
CLASS_NEEDS_ARGUMENTS = Code(
    "class-needs-arguments", _ERROR,
    "the server constructs the {role} class {cls} without arguments, but {name} {reason}",
    "Give each parameter of `__init__` a default, or read it from the config.",
)
VOCABULARY_MISSING = Code(
    "vocabulary-missing", _ERROR, "the text handler's vocabulary '{name}' is not in the archive",
    "Pack the vocabulary as source_vocab.pt: torch.save({token: index}, 'source_vocab.pt').",
)
TEXT_BATCHES = Code(
    "text-batches", _WARNING, "the text classifier handles one request at a time, and the batch size is {size}",
    "Set batchSize: 1, override `preprocess` and `inference`, or set target: marpack.",
)
CONFIG_KEY_MISSING = Code(
    "config-key-missing", _WARNING, "the handler reads the key '{key}', which the model config does not have",
    "Add the key under config: in marpack.yaml, or to the config file.",
)
CONFIG_KEY_OF_NONE = CONFIG_KEY_MISSING.saying(
    "the handler reads the key '{key}' of the model config, and the archive has no config"
)
MANIFEST_KEY_MISSING = Code(
    "manifest-key-missing", _WARNING, "the handler reads {key} of the manifest, which does not name a {kind}",
    "Name the file when you build the archive.",
)

# Model file ----------------------------------------------------------------------------------------------------------

MODEL_FILE_MISSING = Code(
    "model-file-missing", _ERROR, "the model file '{name}' is not in the archive",
    "Pack the file at the archive's root, or leave modelFile out.",
)
MODEL_FILE_NAME = Code(
    "model-file-name", _ERROR, "the server imports '{module}', which is not '{name}'",
    "Rename the file to a plain name such as model.py, at the root.",
)
MODEL_FILE_NOTEBOOK = MODEL_FILE_NAME.saying("'{name}' is a notebook, and the server imports Python files")
MODEL_FILE_NEVER_FOUND = MODEL_FILE_NAME.saying("the server imports Python's own module '{module}' instead")
MODEL_NO_CLASS = Code(
    "model-no-class", _ERROR, "the model file has no class of its own",
    "Define the model's class in the model file: class Model(Imported): pass.",
)
MODEL_MANY_CLASSES = Code(
    "model-many-classes", _ERROR,
    "the model file has {count} classes of its own ({names}) where the server wants exactly one",
    "Move the other classes into another module: imported classes do not count.",
)
MODEL_NOT_A_MODULE = Code(
    "model-not-a-module", _ERROR, "the class {cls} is not a torch.nn.Module",
    "Derive the class from torch.nn.Module.",
)

# Imports -------------------------------------------------------------------------------------------------------------

IMPORT_RELATIVE = Code(
    "import-relative", _ERROR, "'{name}' is a relative import, and {member} is not in such a package",
    "Import the packed module by its own name: `from model import Net`.",
)
IMPORT_NAME_MISSING = Code(
    "import-name-missing", _ERROR, "{member} has no '{name}'",
    "Define the name there, or correct its spelling.",
)
IMPORT_SUBMODULE_MISSING = Code(
    "import-submodule-missing", _ERROR, "'{name}' is not in the archive, but {package} is",
    "Pack the module, or correct its name.",
)
IMPORT_NOT_PACKED = Code(
    "import-not-packed", _ERROR, "'{name}' is not packed",
    "Pack the file at the archive's root.",
)
IMPORT_ELSEWHERE = IMPORT_NOT_PACKED.saying("'{name}' is packed as {place}, where Python does not look")
IMPORT_FLATTENED = IMPORT_NOT_PACKED.saying(
    "'{name}' is not packed, but {member} is at the archive's root: --extra-files leaves the folder out"
)
IMPORT_HANDLER_MODULE = Code(
    "import-handler-module", _ERROR, "'{name}' is found only as ts.torch_handler.{name}",
    "Import from ts.torch_handler.",
)
IMPORT_UNLISTED = Code(
    "import-unlisted", _WARNING, "'{name}' is not packed, not in the requirements and not on a stock server",
    "List its distribution in requirements.txt, or pack the module.",
)
IMPORT_MAYBE_LISTED = Code(
    "import-unlisted", _NOTE, "'{name}' may be part of {distribution}, which the requirements list",
    "If it is not, add its distribution to them.",
)
TS_MODULE_MISSING = Code(
    "ts-module-missing", _ERROR, "TorchServe 0.12 has no module '{module}'",
    "Import it from a module that TorchServe 0.12 has.",
)
TS_NAME_MISSING = Code(
    "ts-name-missing", _ERROR, "'{module}' has no '{name}' in TorchServe 0.12",
    "Import it from the module in which TorchServe 0.12 has it.",
)
TS_NEEDS_ENGINE = Code(
    "ts-needs-engine", _NOTE, "'{module}' needs {needed}, which a stock server does not have",
    "List the package in requirements.txt, or use a server image that has it.",
)
MODULE_BREAKS_WORKER = Code(
    "module-breaks-worker", _ERROR, "the worker itself imports '{name}', and gets this file instead",
    "Rename the file and its imports.",
)
MODULE_SHADOWS = Code(
    "module-shadows", _WARNING, "the file replaces Python's own '{name}' for every library on the server",
    "Rename the file and its imports.",
)
MODULE_SHADOWS_PACKAGE = MODULE_SHADOWS.saying("the file replaces the package '{name}' on the server")
MODULE_AT_START = MODULE_SHADOWS.saying("every Python on the server runs '{name}' when it starts")
PLUGIN = MODULE_SHADOWS.saying("packages on the server import its plug-ins: {groups}")
MODULE_NEVER_FOUND = Code(
    "module-never-found", _WARNING, "Python has already loaded its own module '{name}'",
    "Rename the file and its imports.",
)
MODULE_HIDDEN = Code(
    "module-hidden", _WARNING, "Python imports {member} instead",
    "Rename one of the two.",
)

# Names ---------------------------------------------------------------------------------------------------------------

UNDEFINED_NAME = Code(
    "undefined-name", _WARNING, "the name '{name}' is not defined",
    "Define or import the name before it is used.",
)
UNDEFINED_UNLESS = Code(
    "undefined-name", _NOTE, "the name '{name}' is not defined, unless the module defines it when it runs",
    UNDEFINED_NAME.hint,
)

# Requirements --------------------------------------------------------------------------------------------------------

REQUIREMENTS_MISSING = Code(
    "requirements-missing", _WARNING, "the requirements file '{name}' is not in the archive",
    "Pack the file, or remove it from the manifest.",
)
REQUIREMENTS_INCLUDE_MISSING = REQUIREMENTS_MISSING.saying("the file includes '{text}', which is not in the archive")
REQUIREMENTS_LINE = Code(
    "requirements-line", _ERROR, "pip refuses '{text}': {reason}",
    "Write NAME, NAME==VERSION, NAME[extra]>=VERSION, or NAME @ https://….",
)
REQUIREMENTS_PATH = Code(
    "requirements-path", _WARNING, "'{text}' is not in the archive",
    "Pack the wheel and name its path in the archive, or name a released version.",
)
REQUIREMENTS_UNNAMED = Code(
    "requirements-unnamed", _NOTE, "'{text}' does not name its distribution",
    "Write NAME @ ADDRESS.",
)
REQUIREMENTS_NEED_SETTING = Code(
    "requirements-need-setting", _NOTE, "the server installs requirements only with install_py_dep_per_model=true",
    "Set install_py_dep_per_model=true on the server, and useVenv: true for versions of your own.",
)
REQUIREMENTS_TOO_LARGE = Code(
    "requirements-too-large", _ERROR, "the requirements file is larger than {limit} MiB and was not checked",
    "Check that it is the right file.",
)

# Weights -------------------------------------------------------------------------------------------------------------

WEIGHTS_MISSING = Code(
    "weights-missing", _ERROR, "the weights file '{name}' is not in the archive",
    "Pack the file at the archive's root, or leave serializedFile out.",
)
WEIGHTS_UNNAMED = WEIGHTS_MISSING.saying(
    "the manifest has a serializedFile without a name, and the server still looks for it",
    "Leave serializedFile out of the manifest.",
)
WEIGHTS_NONE = Code(
    "weights-none", _ERROR, "the handler loads a model as BaseHandler does, and the archive has none",
    "Pack the weights (--serialized-file), or override `initialize`.",
)
WEIGHTS_UNTRAINED = Code(
    "weights-untrained", _NOTE, "the archive has a model file, and no weights to load into it",
    "Pack the state_dict, unless the class loads its own weights.",
)
WEIGHTS_SUFFIX = Code(
    "weights-suffix", _ERROR, "the server has no loader for '{suffix}' files: 'No model weights could be loaded'",
    "Save TorchScript as .pt, pack a model file, or set target: marpack.",
)
WEIGHTS_NEED_MODEL_FILE = Code(
    "weights-need-model-file", _ERROR, "the weights are {format}, and the archive has no model file",
    "Pack the model's class (--model-file), or save TorchScript: torch.jit.script(model).save(path).",
)
WEIGHTS_CONTENT = Code(
    "weights-content", _ERROR, "the weights are {format}; {needed} is needed",
    "Save TorchScript as .pt, ONNX as .onnx; or, for a model file, torch.save(model.state_dict(), path).",
)
WEIGHTS_PICKLED = Code(
    "weights-pickled", _ERROR, "the weights are a whole pickled model; {needed} is needed",
    "Save the state_dict (torch.save(model.state_dict(), path)) and pack the model file.",
)
WEIGHTS_PICKLED_TRUST = Code(
    "weights-pickled", _WARNING, "the weights are a whole pickled model, which marpack loads only on trust",
    WEIGHTS_PICKLED.hint,
)
WEIGHTS_EMPTY = Code(
    "weights-absent", _ERROR, "{name} is empty",
    "Fetch the file again.",
)
WEIGHTS_LFS_POINTER = WEIGHTS_EMPTY.saying("{name} is a Git LFS pointer, not weights", "Run git lfs pull.")
WEIGHTS_WEB_PAGE = WEIGHTS_EMPTY.saying("{name} is a web page, not weights", "Download it again.")
_OWN_INITIALIZE = "Load it in the handler's own initialize."
WEIGHTS_JSON = WEIGHTS_EMPTY.saying("{name} is JSON, which BaseHandler does not load", _OWN_INITIALIZE)
WEIGHTS_BOOSTER = WEIGHTS_EMPTY.saying(
    "{name} is an XGBoost model in JSON, which BaseHandler does not load", _OWN_INITIALIZE
)
WEIGHTS_TEXT = WEIGHTS_EMPTY.saying("{name} is a text file, not weights", "Check the path.")
WEIGHTS_OBJECTS = Code(
    "weights-objects", _ERROR, "the weights pickle more than tensors, which torch 2.6 and later refuse",
    "Save tensors only: torch.save({key: value for key, value in state.items() if torch.is_tensor(value)}, path).",
)
WEIGHTS_UNKNOWN = Code(
    "weights-unknown", _WARNING, "the format of the weights is unknown",
    "Check that the file is complete; save it again.",
)
WEIGHTS_AOT_SETTING = Code(
    "weights-aot-setting", _ERROR, "the model config does not set pt2.export.aot_compile",
    "Add `pt2: {export: {aot_compile: true}}` to the model config.",
)
WEIGHTS_ONNX_INFERENCE = Code(
    "weights-onnx-inference", _ERROR,
    "BaseHandler's inference cannot call an ONNX Runtime session: every request is a 503",
    "Override `inference` with self.model.run(None, {name: array}), or build with target: marpack.",
)
WEIGHTS_ONNX_RUNTIME = Code(
    "weights-onnx-runtime", _WARNING, "onnxruntime is neither in the requirements nor on a stock server",
    "List onnxruntime in requirements.txt, or use a server image that has it.",
)
WEIGHTS_CHECKPOINT = Code(
    "weights-checkpoint", _WARNING, "the weights are a checkpoint: the tensors are under its key '{key}'",
    "Save the inner mapping: torch.save(checkpoint[KEY], path).",
)
WEIGHTS_DATA_PARALLEL = Code(
    "weights-data-parallel", _WARNING, "every key begins with 'module.', as DataParallel writes them",
    "Save the inner model's state_dict: torch.save(model.module.state_dict(), path).",
)
WEIGHTS_UNEXPECTED_KEY = Code(
    "weights-unexpected-key", _WARNING, "the weights have tensors for '{name}', which the class {cls} does not mention",
    "Save the state_dict of the packed class.",
)
WEIGHTS_MISSING_KEY = Code(
    "weights-missing-key", _WARNING, "the weights have no tensors for '{name}', a layer of the class {cls}",
    "Save the state_dict of the packed class.",
)

# Labels --------------------------------------------------------------------------------------------------------------

LABELS_ENCODING = Code(
    "labels-encoding", _ERROR, "the server cannot decode the labels: {reason}",
    "Save the file as UTF-8 without a byte-order mark.",
)
LABELS_SYNTAX = Code(
    "labels-syntax", _ERROR, "the server cannot parse the labels: {reason}",
    "Correct the line. `python -m json.tool index_to_name.json` shows the same error.",
)
LABELS_SHAPE = Code(
    "labels-shape", _ERROR, "the server cannot use the labels: {reason}",
    'Write {"0": "cat", "1": "dog"}.',
)
LABELS_UNCHECKED = Code(
    "labels-unchecked", _NOTE, "the labels were not checked: {reason}",
    "Check that it is the right file.",
)
LABELS_VALUE = Code(
    "labels-value", _ERROR, "the label of '{key}' is {kind}, not a string",
    'Write labels as strings: {"0": "cat"}.',
)
LABELS_MORE_VALUES = LABELS_VALUE.saying("{count} more labels are not strings")
LABELS_LISTED_VALUE = LABELS_VALUE.saying("a label is {kind}, not a string")
LABELS_KEY = Code(
    "labels-key", _WARNING, "'{key}' is not a class index{more}",
    'Write the index first, as a plain number in quotes: {"0": "cat"}.',
)
LABELS_INVERTED = LABELS_KEY.saying("the file maps labels to indices; the server wants indices to labels")
LABELS_GAP = Code(
    "labels-gap", _WARNING, "class {missing} no label",
    "Name every class from 0 to the last.",
)
LABELS_EMPTY = LABELS_GAP.saying("the labels name no class")
LABELS_DUPLICATE_KEY = Code(
    "labels-duplicate-key", _WARNING, "'{key}' occurs twice",
    "Keep one of the two.",
)
LABELS_DUPLICATE = Code(
    "labels-duplicate", _NOTE, "{count} classes have the label '{label}'{more}",
    "Give every class a label of its own.",
)
LABELS_FEW = Code(
    "labels-few", _WARNING, "there {count}, and the image classifier returns the top {topk}",
    "Derive a class from ImageClassifier and set topk, or set target: marpack.",
)
LABELS_MISNAMED = Code(
    "labels-misnamed", _NOTE, "'{name}' looks like labels, and the server reads only index_to_name.json at the root",
    "Pack it as index_to_name.json at the archive's root.",
)

# Model config --------------------------------------------------------------------------------------------------------

CONFIG_MISSING = Code(
    "config-missing", _ERROR, "the model config '{name}' is not in the archive",
    "Pack the file at the archive's root, or leave configFile out.",
)
CONFIG_UNNAMED = CONFIG_MISSING.saying(
    "the manifest has a configFile without a name, and every worker still looks for it",
    "Leave configFile out of the manifest.",
)
CONFIG_ENCODING = Code(
    "config-encoding", _ERROR, "the model config is not UTF-8",
    "Save the file as UTF-8.",
)
CONFIG_SYNTAX = Code(
    "config-syntax", _ERROR, "the model config is not valid YAML: {reason}",
    "Correct the line; indent with spaces, never with tabs.",
)
CONFIG_TAG = Code(
    "config-tag", _ERROR, "a tag would make an object: {reason}",
    "Write plain values, without '!' tags.",
)
CONFIG_BOMB = Code(
    "config-bomb", _ERROR, "the model config expands too far: {reason}",
    "Write the values out.",
)
CONFIG_ROOT = Code(
    "config-root", _ERROR, "the model config is {kind}",
    "Write `key: value` lines, or leave configFile out.",
)
CONFIG_KEY = Code(
    "config-key", _ERROR, "the key {key} has the type {kind}, not string",
    "Put the key in quotes.",
)
CONFIG_DUPLICATE_KEY = Code(
    "config-duplicate-key", _WARNING, "'{key}' occurs twice, and only the last one counts",
    "Keep one of the two.",
)
CONFIG_TOO_DEEP = Code(
    "config-beyond-frontend", _WARNING,
    "the model config has too many levels or aliases for the frontend, which ignores it",
    "Shorten the config: at most 3 MiB, 50 levels, 50 aliases.",
)
CONFIG_TOO_LARGE = CONFIG_TOO_DEEP.saying("the model config is too large for the frontend, which ignores it")
CONFIG_UNCHECKED = Code(
    "config-unchecked", _NOTE, "the model config is larger than {limit} KiB and was not checked",
    "Move what the server does not read into another file.",
)
CONFIG_TYPE = Code(
    "config-type", _WARNING, "'{key}' is {value}, not {kind}; the frontend ignores it",
    'Write the value with its type: 8, not "8"; true, not "true".',
)
CONFIG_RANGE = Code(
    "config-range", _WARNING, "'{key}' is {value}; the server knows {words}",
    "Write a value that the server accepts.",
)
CONFIG_MINIMUM = CONFIG_RANGE.saying("'{key}' is {value}; the minimum is {minimum}")
CONFIG_DEVICE = Code(
    "config-range", _NOTE, "'{key}: {value}' counts as not set: the frontend knows {words}",
    CONFIG_RANGE.hint,
)
SEQUENCE_IDLE_TIME = Code(
    "sequence-idle-time", _ERROR,
    "sequenceBatching without a sequenceMaxIdleMSec: the server responds to every request with 500",
    "Set `sequenceMaxIdleMSec`, in milliseconds, or remove `sequenceBatching`.",
)
CONFIG_UNKNOWN_KEY = Code(
    "config-unknown-key", _WARNING, "the server does not read '{key}'",
    "Correct the key's spelling.",
)
CONFIG_WORKERS = Code(
    "config-workers", _WARNING, "minWorkers is {minimum} and maxWorkers {maximum}",
    "Set minWorkers to at most maxWorkers.",
)
CONFIG_TORCHRUN_KEY = Code(
    "config-torchrun-key", _WARNING, "the server does not pass on '{key}'",
    "Use a key that it passes on, such as nnodes, nproc-per-node, rdzv-backend or OMP_NUMBER_THREADS.",
)
CONFIG_TORCHRUN_KEY_TYPE = Code(
    "config-torchrun-key", _ERROR, "the key {key} is not a string, and the server refuses the model",
    CONFIG_TORCHRUN_KEY.hint,
)
PT2_SHAPE = Code(
    "pt2-shape", _ERROR, "'pt2' is {kind}, neither a backend's name nor a mapping",
    "Write `pt2: {compile: {enable: true, backend: inductor}}`.",
)
PT2_WORD = PT2_SHAPE.saying("the server takes 'pt2: {word}' for a section with a compile key")
PT2_COMPILE_SHAPE = PT2_SHAPE.saying("'pt2.compile' is {kind}, not a mapping")
PT2_NO_ENABLE = PT2_SHAPE.saying("'pt2.compile' has no 'enable', which the server reads first")
PT2_BACKEND = Code(
    "pt2-backend", _WARNING, "the server does not know the backend '{backend}', and runs the model uncompiled",
    "Use inductor, eager, aot_eager, onnxrt, openvino, tensorrt, ipex or hpu_backend.",
)
PT2_BACKEND_GONE = Code(
    "pt2-backend-gone", _WARNING, "torch has removed the backend '{backend}'",
    "Name a backend that torch still has, such as inductor.",
)
PT2_BACKEND_NEEDS = Code(
    "pt2-backend-needs", _NOTE, "the backend '{backend}' needs {packages}",
    "List the package in requirements.txt, or use a server image that has it.",
)
PT2_OPTION = Code(
    "pt2-option", _WARNING, "torch.compile does not accept '{key}'",
    "Use fullgraph, dynamic, backend, disable, and either mode or options.",
)
PT2_OPTION_TYPE = PT2_OPTION.saying("torch.compile's '{key}' cannot be {kind}")
PT2_MODE_AND_OPTIONS = PT2_OPTION.saying("torch.compile accepts 'mode' or 'options', not both")
PT2_MODE = PT2_OPTION.saying("torch.compile has no mode '{mode}'")
PT2_OFF = Code(
    "pt2-off", _WARNING, "'pt2.compile.enable' is {value}, so nothing is compiled",
    "Write `enable: true`, or leave the section out.",
)
PT2_OFF_WORD = PT2_OFF.saying("'pt2: {word}' compiles nothing")
PT2_OFF_EXPORT = PT2_OFF.saying("'pt2.export' does not set 'aot_compile: true', and so has no effect")

# Checks --------------------------------------------------------------------------------------------------------------

DOES_NOT_LOAD = Code(
    "does-not-load", _ERROR, "the handler fails in {stage}: {error}",
    "Run `marpack run` to see the traceback.",
)
WORKER_DOES_NOT_LOAD = DOES_NOT_LOAD.saying("the worker does not load the model: {reason}")
LACKING_HERE = Code(
    "lacking-here", _WARNING, "the handler fails in {stage} on this machine: {error}",
    "Install the package, or check the archive with --env isolated.",
)
SAMPLE_UNREADABLE = Code(
    "sample-unreadable", _ERROR, "invalid sample: {reason}",
    "Build the archive again: marpack build.",
)
SAMPLE_MISSING = Code(
    "sample-missing", _ERROR, "the sample {sample} is listed and not packed",
    "Build the archive again: marpack build.",
)
SAMPLE_MISSED = Code(
    "sample-missed", _ERROR, "unexpected response: {difference}{cause}",
    "Correct the handler. If the response is right, record it: marpack run --input FILE --record",
)
SAMPLE_RAISED = Code(
    "sample-raised", _ERROR, "{sample} gets the expected response by an exception: {error}",
    "Handle the input, or raise PredictionException if the response is meant.",
)
BATCH_REFUSED = Code(
    "batch-refused", _ERROR, "a batch of {size} gets {status}{reason}",
    "Handle every row of `data` by itself, or set batchSize: 1.",
)
BATCH_DIFFERS = Code(
    "batch-differs", _ERROR, "{sample} gets another response in a batch of {size}: {difference}",
    BATCH_REFUSED.hint,
)
_FORMS = "Decode bytes, text and form fields alike in `preprocess`."
FORM_KILLS = Code(
    "form-kills", _ERROR, "{sample} {form} kills the worker: {reason}",
    _FORMS,
)
FORM_BREAKS = Code(
    "form-breaks", _ERROR, "{sample} {form} fails: {error}",
    _FORMS,
)
FORM_DIFFERS = Code(
    "form-differs", _ERROR, "{sample} {form} gets another response: {difference}",
    _FORMS,
)
FORM_IGNORED = Code(
    "form-ignored", _WARNING, "{sample} {form} gets the response to an empty request",
    _FORMS,
)
FORM_NOT_ACCEPTED = Code(
    "form-not-accepted", _NOTE, "{sample} {form} is not accepted: {reason}",
    "Accept the form in `preprocess` if clients send it.",
)
NOT_REPEATABLE = Code(
    "not-repeatable", _ERROR, "{sample} gets another response when sent again: {difference}",
    "Keep nothing between requests, call model.eval() and fix seeds. If responses are meant to vary, set checks:"
    " {repeatable: warning} in marpack.yaml.",
)
UNKNOWN_LABEL = Code(
    "unknown-label", _ERROR, "responses name {names}, which {file} does not contain",
    "List one label per output, in the model's order.",
)
UNUSED_LABELS = Code(
    "unused-labels", _WARNING, "responses name classes, but none of them is in {file}",
    UNKNOWN_LABEL.hint,
)
IDLE_LABEL = Code(
    "idle-label", _ERROR, "the model has {outputs} outputs, and {file} names {labels}",
    UNKNOWN_LABEL.hint,
)
MISSING_LABEL = Code(
    "missing-label", _ERROR, IDLE_LABEL.message,
    UNKNOWN_LABEL.hint,
)
COMPILED_DIFFERS = Code(
    "compiled-differs", _ERROR, "{sample} gets another response without compiling: {difference}",
    "Set pt2: {compile: {enable: false}}, or another backend.",
)
WORN_OUT = Code(
    "worn-out", _ERROR, "after {requests} more requests, a sample gets {status}{reason}",
    "Keep no inputs or outputs on the handler, and use torch.inference_mode().",
)
MEMORY_GROWS = Code(
    "memory-grows", _ERROR, "the worker grows by {size:.1f} KiB per request",
    WORN_OUT.hint,
)
MEMORY_UNDECIDED = Code(
    "memory-undecided", _WARNING, "the memory check is undecided: {reason}",
    "Give the check more time with --patience.",
)
MODEL_FOLDER_WRITTEN = Code(
    "model-folder-written", _ERROR, "{name} was written, changed or removed in the model folder",
    "Write to a temporary folder (tempfile) instead.",
)
NO_INPUTS = Code(
    "no-inputs", _ERROR, "no request was sent",
    "Give an input with --input, or record one: marpack run --input FILE --record",
)
NO_ANSWER = Code(
    "no-answer", _ERROR, "no request got a 2xx, because no sample expects one",
    NO_INPUTS.hint,
)
UNEXPECTED_STATUS = Code(
    "unexpected-status", _ERROR, "{missed} of {requests} did not get the expected status",
    "Run `marpack check --only samples` to see which, and why.",
)
GENERATED_SAMPLE = Code(
    "generated-sample", _ERROR,
    "every sample that succeeded was generated by marpack init ({names}); record a real input: {command}",
    "If it is a real input, delete its key `generated` in marpack.yaml.",
)
BATCH_UNPROVED = Code(
    "batch-unproved", _ERROR, "a batch of 2 gets {status}{reason}",
    BATCH_REFUSED.hint,
)
ONE_INPUT = Code(
    "one-input", _NOTE, "with one input in every row, mixed-up rows would go unnoticed",
    "Add a sample with another input.",
)
GPU_UNPROVED = Code(
    "gpu-unproved", _ERROR, "deviceType is gpu, but the model ran on the CPU",
    "Check it on a machine with a GPU.",
)
CPU_DIFFERS = Code(
    "cpu-differs", _WARNING, "{sample} gets another response on the CPU: {difference}, tolerance {tolerance:g}",
    "If the difference is acceptable, raise --tolerance.",
)
ALLOWED_UNPROVED = Code(
    "allowed-unproved", _NOTE, "{reason} (--allow-unproved {name})",
    "Remove --allow-unproved to require the proof.",
)
NOTHING_ASKED = Code(
    "nothing-asked", _ERROR, "{reason}, so no request was sent",
    "Correct the failed check first.",
)
NO_STAND_IN = Code(
    "no-stand-in", _NOTE, "no requests were generated: {reason}",
    "Use --stand-ins on to send some.",
)
STAND_IN_FAILED = Code(
    "stand-in-failed", _WARNING, "{input}, generated and sent {way}, gets {status}{reason}",
    "Check with a real input: --input FILE",
)
STAND_IN_ANSWERED = Code(
    "stand-in-answered", _NOTE, "{input}, generated, gets a 2xx {ways}",
    "Record a real input: marpack run --input FILE --record",
)
NOT_HERMETIC = Code(
    "not-hermetic", _ERROR, "the handler accesses {target} ({kind}, in {stage})",
    "Remove the access, or pack what the handler needs.",
)
ALLOWED_NEED = Code(
    "allowed-need", _NOTE, "the handler accesses {target} ({kind}, in {stage}), as marpack.yaml allows",
    "Make sure that the server has it.",
)
DIFFERS = Code(
    "differs", _ERROR, "{sample} gets another response: {difference}",
    "If they are meant to differ, use --skip alike.",
)
NOT_COMPARED = Code(
    "not-compared", _ERROR, "no request got a 2xx from both",
    "Name inputs that get one: --input FILE…",
)
SLOWER = Code(
    "slower", _ERROR, "a request costs over {share:.4g} % more: {figures}",
    "Run `marpack run --repeat 100` to see how long each stage takes.",
)
SLOWER_UNDECIDED = Code(
    "slower-undecided", _WARNING, "whether it is slower is undecided after {starts} of both",
    "Stop other programs on this machine.",
)

# Build and init -------------------------------------------------------------------------------------------------------

UNKNOWN_KEY = Code(
    "unknown-key", _ERROR, "unknown key '{key}'",
    "Correct the key's spelling, or remove it.",
)
MISSING_KEY = Code(
    "missing-key", _ERROR, "the key '{key}' is missing",
    "Add the key.",
)
WRONG_TYPE = Code(
    "wrong-type", _ERROR, "'{key}' is {actual}, not {expected}",
    "Write a value of the type that the message names.",
)
EMPTY_KEY = Code(
    "empty-key", _ERROR, "'{key}' has no value",
    "Give the key a value, or remove the line.",
)
OUTSIDE_PROJECT = Code(
    "outside-project", _ERROR, "outside the project folder {folder}: {files}",
    "Copy the files into the project folder, or pass --allow-outside.",
)
MISSING_FILE = Code(
    "missing-file", _ERROR, "{file} does not exist",
    "Create the file, or correct the path.",
)
MISSING_FILE_LINK = MISSING_FILE.saying(
    "{file} is a broken symlink",
    "Point the symlink to a file that exists, or correct the path.",
)
MISSING_FILE_HANDLER = MISSING_FILE.saying("{file} is neither a built-in handler nor a file")
NAME_COLLISION = Code(
    "name-collision", _ERROR, "two files would be {name} in the archive: {first} and {second}",
    "Rename one of them: each name in an archive is unique.",
)
NAME_COLLISION_FOLDER = NAME_COLLISION.saying("{name} would be both a file and the folder of {member}")
NAME_COLLISION_VENDORED = NAME_COLLISION.saying(
    "{name} comes from {place} and from {wheel}, and differs",
    "Rename the file, or remove the requirement that brings the wheel.",
)
RESERVED_NAME = Code(
    "reserved-name", _ERROR, "{name} is in MAR-INF/, which is reserved for marpack",
    "Rename the file.",
)
EMPTY_FOLDER = Code(
    "empty-folder", _WARNING, "the folder {folder} has no files",
    "Add files to the folder, or do not pack it.",
)
SYMLINK_OUTSIDE = Code(
    "symlink-outside", _WARNING, "symlinks add files from outside {folder}: {names}",
    "Replace each symlink with a copy of its file.",
)
NOTEBOOK = Code(
    "notebook", _ERROR, "{file} is a notebook, and the server imports Python files",
    "Convert the notebook to a Python file: jupyter nbconvert --to script FILE",
)
NOT_A_FILE = Code(
    "not-a-file", _ERROR, "{file} is {kind}, not a regular file",
    "Name a regular file.",
)
UNREADABLE = Code(
    "unreadable", _ERROR, "{file} cannot be read: {reason}",
    "Check the file's permissions.",
)
GLOB_WITHOUT_MATCH = Code(
    "glob-without-match", _WARNING, "the pattern {pattern} matches no file",
    "Correct the pattern, or remove it.",
)
MEMBER_NAME = Code(
    "member-name", _ERROR, "{reason}, so it cannot be packed",
    "Rename the file.",
)
VERSION = Code(
    "version", _ERROR, "the version '{version}' is empty",
    "Give the model a version: version: '1.0'",
)
SAMPLES = Code(
    "samples", _ERROR, "no response can meet this expectation: {reason}",
    "Correct the sample in marpack.yaml.",
)
SAMPLES_MARK = SAMPLES.saying(
    "{mark} is not the SHA-256 of a generated sample",
    "Write sha256: and 64 lower-case hexadecimal digits, or delete the key.",
)
SAMPLES_KEY = SAMPLES.saying(
    "the expectation of {sample} has a key that is not text",
    "Quote the keys yes, no, on, off, dates and numbers.",
)
METADATA = Code(
    "metadata", _ERROR, "the metadata cannot be recorded: {reason}",
    "Correct the metadata in marpack.yaml.",
)
VENDOR = Code(
    "vendor", _ERROR, "the vendored packages cannot be added: {reason}",
    "Lock the packages again: marpack build --vendor",
)
VENDOR_SHADOWS = VENDOR.saying(
    "{name} would replace a module that the worker needs, or never be imported",
    "Remove the requirement.",
)
LABELS = Code(
    "labels", _ERROR, "the labels cannot be converted to JSON: {reason}",
    "Correct the labels file.",
)
FILE_NOT_PACKED = Code(
    "file-not-packed", _WARNING, "the handler names {file}, which exists and is not packed",
    "If the model needs it, pack it: files: [NAME] in marpack.yaml, or --extra-files.",
)
OUTPUT = Code(
    "output", _ERROR, "the archive cannot be written: {reason}",
    "Choose another output.",
)
MORE_HANDLERS = Code(
    "more-handlers", _NOTE, "{name} was chosen as the handler; it could also be {others}",
    "Name another with --handler.",
)
LEFT_OUT = Code(
    "left-out", _NOTE, "left out, because {handler} does not name them: {files}",
    "Add the files that it needs to `files:` in marpack.yaml.",
)
NOT_CARRIED_OVER = Code(
    "not-carried-over", _WARNING, "marpack.yaml has no key for the manifest's {keys}",
    "Check that the model does not need them.",
)
NAME_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "'{name}' is not a model name, so the project's is '{used}'",
    "Change the name in marpack.yaml if you want another.",
)
VERSION_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "the archive has no version, so the project's is 1.0",
    "Change the version in marpack.yaml if you want another.",
)
RUNTIME_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying("the runtime '{runtime}' of the manifest becomes 'python'")
MEMBERS_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying("{names} is left out: the server ignores it")
METADATA_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "the {keys} in MAR-INF/marpack.json is not valid in marpack.yaml",
    "Write valid values under `metadata:` in marpack.yaml.",
)
VENDORED_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "the vendored packages become plain files of the project",
    "To lock them again, remove the files and run marpack build --vendor.",
)
COMMIT_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "the archive was built from commit {commit}",
    "Record the commit again when you build: marpack build --source-commit COMMIT",
)
PLACE_NOT_CARRIED_OVER = NOT_CARRIED_OVER.saying(
    "the manifest's {key} is {file}, which is in a folder",
    "Move the file to the archive's root, where the server looks for it.",
)
CONVERTED = Code(
    "converted", _NOTE, "{converted} has the tensors of {file}, which TorchServe cannot load",
    "Convert the file again: marpack init --force",
)
CONVERTED_BEFORE = Code(
    "converted", _WARNING, "{converted} exists: it is packed, and {file} is not converted",
    CONVERTED.hint,
)
NOT_FOR_TORCHSERVE = Code(
    "not-for-torchserve", _WARNING, "TorchServe cannot load {file}, so the target is marpack",
    "For TorchServe, save the model: torch.jit.trace(model, example).save('model.pt')",
)
STATE_NOT_FOR_TORCHSERVE = NOT_FOR_TORCHSERVE.saying(
    NOT_FOR_TORCHSERVE.message,
    "Name the model's class, and marpack converts the file: marpack init --force --model-file FILE",
)
MORE_WEIGHTS = Code(
    "more-weights", _WARNING, "{name} was chosen as the weights{why}; there are also {others}",
    "Name another with --weights.",
)
NO_SAMPLES = Code(
    "no-samples", _NOTE, "without a sample, `marpack check` reports the archive as not proved",
    "Add a sample: marpack run --input FILE --record",
)
MORE_MODEL_FILES = Code(
    "more-model-files", _NOTE, "{name} was chosen for the model's class; it could also be {others}",
    "Name another with --model-file.",
)
DEMO_PROJECT = Code(
    "demo-project", _NOTE, "the folder has no usable model, so the project is a demo with a model of its own",
    "Copy your weights into the folder and repeat the command with --force.",
)

# Hugging Face models --------------------------------------------------------------------------------------------------

TASK_CHOSEN = Code(
    "task-chosen", _NOTE, "the task is {task}, by {reason}",
    "To choose another: marpack init --force --task TASK",
)
REMOTE_CODE = Code(
    "remote-code", _WARNING, "the code that auto_map names is neither packed nor run",
    "If the model needs it and you trust it: marpack init --force --trust-remote-code",
)
TRUSTED_CODE = Code(
    "remote-code", _NOTE, "the handler runs the code that auto_map names",
    "Read the code before you deploy the archive.",
)
UNUSED_FILES = LEFT_OUT.saying("left out, because transformers does not load them: {files}")
PACKAGE_NOT_INSTALLED = Code(
    "package-not-installed", _WARNING, "{user} needs {package}, which is not installed",
    "Install the requirements: pip install -r requirements.txt",
)
PRETRAINED_FILE = Code(
    "pretrained-file", _WARNING, "{user} needs {file}, which is not in the archive",
    "Add the file under files: in marpack.yaml, or with --extra-files.",
)

# Run ------------------------------------------------------------------------------------------------------------------

OTHER_DEVICE = Code(
    "other-device", _WARNING, "the model runs on {found}, not on {asked}",
    "Check that torch supports the device, and that the handler does not choose one.",
)
REQUIREMENT_UNMET = Code(
    "requirement-unmet", _ERROR, "{package} is not installed here",
    "Install the requirement, or run with --env isolated.",
)
REQUIREMENT_OTHER_VERSION = REQUIREMENT_UNMET.saying(
    "{package} {version} is installed here, and the archive requires {specifier}"
)
REQUIREMENT_OTHER_PLATFORM = REQUIREMENT_UNMET.saying(
    "{package} is vendored for another Python or machine: {wheel}",
    "To try the archive here, vendor for this Python in a copy of the project: marpack build --vendor",
)
DATA_AS_TEXT = Code(
    "data-as-text", _WARNING, "{text} begins like JSON but is not valid, so it is sent as text/plain: {error}",
    "Correct the JSON. To send text: --content-type text/plain.",
)
SEQUENCE_BATCHING = Code(
    "sequence-batching", _WARNING,
    "sequenceBatching is true: the server responds to a second sequence with 503, and marpack with 200",
    "Test sequences on a TorchServe server.",
)

# Sign and verify ------------------------------------------------------------------------------------------------------

READABLE_KEY = Code(
    "readable-key", _WARNING, "other users of this machine can read the private key {file}",
    "Remove the permissions of others: chmod 600 FILE.",
)
_NOT_CHECKED = "Check the file again: marpack check --attest FILE"
_NOT_SIGNED = "Do not deploy the file. Get it again from the signer."
CHECKED_FILE = Code(
    "checked-file", _ERROR, "the SHA-256 is {sha256}, and the check examined {others}",
    "Name the attestation of this file.",
)
CHECK_FAILED = Code(
    "check-failed", _ERROR, "the check ended with '{verdict}'",
    _NOT_CHECKED,
)
CHECK_NOT_PASSED = CHECK_FAILED.saying("the check's result is {result}, not {passed}")
CHECK_RESERVED = Code(
    "check-reserved", _ERROR, "the check passed with an exception: {reason}",
    _NOT_CHECKED,
)
CHECK_INCONSISTENT = Code(
    "check-inconsistent", _ERROR, "the check passed, but {reason}",
    _NOT_CHECKED,
)
SIGNED_NAME = Code(
    "signed-name", _ERROR, "the signature is of a file named {name}",
    "Name the signature of this file, or rename the file.",
)
SIGNED_FILE = Code(
    "signed-file", _ERROR, "the SHA-256 is {found}; {signed} was signed",
    _NOT_SIGNED,
)
SIGNED_MEMBER = Code(
    "signed-member", _ERROR, "the member {name} differs from the signed one",
    _NOT_SIGNED,
)
SIGNED_MEMBER_MISSING = SIGNED_MEMBER.saying("the signed member {name} is missing")
SIGNED_MEMBER_ADDED = SIGNED_MEMBER.saying("the member {name} was added")
SIGNED_MEMBERS_UNREADABLE = SIGNED_MEMBER.saying("the archive cannot be opened: {reason}")
SIGNED_CONTAINER = Code(
    "signed-container", _NOTE, "no member differs, but a header, a comment or the order of members does",
    _NOT_SIGNED,
)

# Pickles --------------------------------------------------------------------------------------------------------------

UNTRUSTED_PICKLE = Code(
    "untrusted-pickle", _WARNING, "torch.load(weights_only=True) refuses the pickle{harmless}: {causes}",
    "Save the state_dict. If you trust the archive's author, use --trust-pickle.",
)
UNSCANNED = Code(
    "unscanned", _WARNING, "not scanned completely: {reason}",
    "If you trust the archive's author, use --trust-pickle.",
)
DANGEROUS_PICKLE = Code(
    "dangerous-pickle", _ERROR, "loading this pickle runs code: {reasons}",
    "Do not load the archive.",
)

# Export ---------------------------------------------------------------------------------------------------------------

EXPORT_NEEDS_TRUST = Code(
    "export-needs-trust", _WARNING, "the pickles need --trust-pickle, which the exported server does not have",
    "Save a state_dict or safetensors; or start the server with --trust-pickle.",
)
EXPORT_REQUIREMENT_LEFT_OUT = Code(
    "export-requirement-left-out", _WARNING, "'{line}' is not installed there",
    "Name a version of the package from an index that the platform reaches.",
)
EXPORT_VENDORED = Code(
    "export-vendored", _WARNING, "{wheel} is not for the image's Python {version}",
    "Vendor for that Python: marpack build --vendor --vendor-python X.Y",
)
EXPORT_NO_GPU = Code(
    "export-no-gpu", _WARNING, "the model config requires GPUs",
    "Export for GPUs: --device cuda.",
)
EXPORT_REQUIREMENTS_UNHASHED = Code(
    "export-requirements-unhashed", _WARNING, "the requirements have no hashes: {unlocked}",
    "Export where pip reaches the index, or pass an earlier lock: --lock requirements.lock",
)
EXPORT_REASON_PHRASE = Code(
    "export-reason-phrase", _NOTE, "the handler sets a status; clients do not get its reason phrase",
    "Put the reason into the body.",
)
EXPORT_STREAMING = Code(
    "export-streaming", _WARNING, "the handler streams; clients get the response in one piece",
    "On SageMaker, call InvokeEndpointWithResponseStream; on KServe, request /predictions/NAME of the predictor.",
)
EXPORT_QUEUE = Code(
    "export-queue", _NOTE, "the jobQueueSize of {size} is not the only queue there",
    "Also set the platform's concurrency and timeout.",
)
EXPORT_OWN_ENVELOPE = Code(
    "export-own-envelope", _WARNING, "the archive keeps its own envelope '{envelope}'",
    "Build the archive without the envelope.",
)
EXPORT_RESPONSE_HEADERS = Code(
    "export-response-headers", _WARNING, "the handler sets response headers, most of which clients do not get",
    "Put values that clients need into the body, or into X-Amzn-SageMaker-Custom-Attributes.",
)
EXPORT_HEADERS_DROPPED = Code(
    "export-response-headers", _NOTE, "the handler sets response headers, which AWS's containers drop",
    "Put values that clients need into the body.",
)
EXPORT_METRICS = Code(
    "export-metrics", _NOTE, "the handler counts metrics that SageMaker does not read",
    "Log the values instead.",
)
EXPORT_RAY_METRICS = EXPORT_METRICS.saying(
    "the handler counts metrics that Ray Serve does not offer",
    "Use ray.util.metrics in deployment.py.",
)
EXPORT_SLOW_ANSWERS = Code(
    "export-slow-answers", _NOTE, "batches may take {seconds} s, and requests end after {max_sagemaker_response} s",
    "Use an asynchronous endpoint, or make responses faster.",
)
EXPORT_REQUEST_HEADERS = Code(
    "export-request-headers", _NOTE, "the handler reads request headers, some of which do not arrive",
    "Look X-Api-Key up by that spelling; with AWS's containers, put the values into the body.",
)
EXPORT_PLACEHOLDER = Code(
    "export-placeholder", _NOTE, "the files have placeholders for {options}",
    "Pass the options, or edit the files.",
)
EXPORT_BATCHES = Code(
    "export-batches", _WARNING, "the batchSize of {batch_size} becomes 1",
    "Send several instances in a request, or export with --to docker.",
)
