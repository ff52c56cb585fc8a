"""The JSON of an exported program, as in `torch/_export/serde/schema.py`: every key, with its exact type.

msgspec refuses a file with an unknown key or another type, so that no part of it remains unchecked.
"""

from typing import Literal

from msgspec import Struct

Number = float | Literal["Infinity", "-Infinity", "NaN"]


class Strict(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An object of the schema. One that torch calls a union has all of its variants as optional fields."""


class Device(Strict):  # noqa: D101 - torch's names, here and below
    type: str
    index: int | None = None


class SymExprHint(Strict):  # noqa: D101
    as_int: int | None = None
    as_bool: bool | None = None
    as_float: Number | None = None


class SymExpr(Strict):  # noqa: D101
    expr_str: str
    hint: SymExprHint | None = None


class SymNumber(Strict):
    """SymInt, SymFloat and SymBool."""

    as_expr: SymExpr | None = None
    as_int: int | None = None
    as_float: Number | None = None
    as_bool: bool | None = None


class TensorMeta(Strict):  # noqa: D101
    dtype: int
    sizes: list[SymNumber]
    requires_grad: bool
    device: Device
    strides: list[SymNumber]
    storage_offset: SymNumber
    layout: int


class SymArgument(Strict):
    """SymIntArgument, SymFloatArgument and SymBoolArgument."""

    as_name: str | None = None
    as_int: int | None = None
    as_float: Number | None = None
    as_bool: bool | None = None


class Named(Strict):
    """TensorArgument and TokenArgument."""

    name: str


class OptionalTensor(Strict):  # noqa: D101
    as_tensor: Named | None = None
    as_none: bool | None = None


class GraphArgument(Strict):  # noqa: D101
    name: str
    graph: "Graph"


class CustomObjArgument(Strict):  # noqa: D101
    name: str
    class_fqn: str


class ComplexValue(Strict):  # noqa: D101
    real: Number
    imag: Number


class Argument(Strict):  # noqa: D101
    as_none: bool | None = None
    as_tensor: Named | None = None
    as_tensors: list[Named] | None = None
    as_int: int | None = None
    as_ints: list[int] | None = None
    as_float: Number | None = None
    as_floats: list[Number] | None = None
    as_string: str | None = None
    as_strings: list[str] | None = None
    as_sym_int: SymArgument | None = None
    as_sym_ints: list[SymArgument] | None = None
    as_scalar_type: int | None = None
    as_memory_format: int | None = None
    as_layout: int | None = None
    as_device: Device | None = None
    as_bool: bool | None = None
    as_bools: list[bool] | None = None
    as_sym_bool: SymArgument | None = None
    as_sym_bools: list[SymArgument] | None = None
    as_graph: GraphArgument | None = None
    as_optional_tensors: list[OptionalTensor] | None = None
    as_custom_obj: CustomObjArgument | None = None
    as_operator: str | None = None
    as_sym_float: SymArgument | None = None
    as_sym_floats: list[SymArgument] | None = None
    as_optional_tensor: OptionalTensor | None = None
    as_complex: ComplexValue | None = None
    as_nested_tensors: list[list[Named]] | None = None
    as_int_lists: list[list[int]] | None = None
    as_string_to_argument: dict[str, "Argument"] | None = None
    as_float_lists: list[list[Number]] | None = None


class NamedArgument(Strict):  # noqa: D101
    name: str
    arg: Argument
    kind: int | None = None


class Node(Strict):  # noqa: D101
    target: str
    inputs: list[NamedArgument]
    outputs: list[Argument]
    metadata: dict[str, str]
    is_hop_single_tensor_return: bool | None = None
    name: str | None = None


class Graph(Strict):  # noqa: D101
    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[Node]
    tensor_values: dict[str, TensorMeta]
    sym_int_values: dict[str, SymNumber]
    sym_bool_values: dict[str, SymNumber]
    is_single_tensor_return: bool = False
    custom_obj_values: dict[str, CustomObjArgument] = {}
    sym_float_values: dict[str, SymNumber] = {}


class ConstantInput(Strict):  # noqa: D101
    name: str
    value: Argument


class UserSpec(Strict):
    """UserInputSpec and UserOutputSpec."""

    arg: Argument


class TensorSpec(Strict):
    """What an input or an output of the graph stands for: a parameter, a buffer, a constant, a gradient, a token."""

    arg: Named
    parameter_name: str | None = None
    buffer_name: str | None = None
    persistent: bool | None = None
    tensor_constant_name: str | None = None
    user_input_name: str | None = None


class CustomObjSpec(Strict):  # noqa: D101
    arg: CustomObjArgument
    custom_obj_name: str


class InputSpec(Strict):  # noqa: D101
    user_input: UserSpec | None = None
    parameter: TensorSpec | None = None
    buffer: TensorSpec | None = None
    tensor_constant: TensorSpec | None = None
    custom_obj: CustomObjSpec | None = None
    token: TensorSpec | None = None
    constant_input: ConstantInput | None = None


class OutputSpec(Strict):  # noqa: D101
    user_output: UserSpec | None = None
    loss_output: TensorSpec | None = None
    buffer_mutation: TensorSpec | None = None
    parameter_mutation: TensorSpec | None = None
    gradient_to_parameter: TensorSpec | None = None
    gradient_to_user_input: TensorSpec | None = None
    user_input_mutation: TensorSpec | None = None
    token: TensorSpec | None = None


class GraphSignature(Strict):  # noqa: D101
    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]


class RangeConstraint(Strict):  # noqa: D101
    min_val: int | None = None
    max_val: int | None = None


class ModuleCallSignature(Strict):  # noqa: D101
    inputs: list[Argument]
    outputs: list[Argument]
    in_spec: str
    out_spec: str
    forward_arg_names: list[str] | None = None


class ModuleCallEntry(Strict):  # noqa: D101
    fqn: str
    signature: ModuleCallSignature | None = None


class NamedTupleDef(Strict):  # noqa: D101
    field_names: list[str]


class GraphModule(Strict):  # noqa: D101
    graph: Graph
    signature: GraphSignature
    module_call_graph: list[ModuleCallEntry]
    metadata: dict[str, str] = {}
    treespec_namedtuple_fields: dict[str, NamedTupleDef] = {}


class SchemaVersion(Strict):  # noqa: D101
    major: int
    minor: int


class ExportedProgram(Strict):
    """A file of `models/`, or serialized_exported_program.json."""

    graph_module: GraphModule
    opset_version: dict[str, int]
    range_constraints: dict[str, RangeConstraint]
    schema_version: SchemaVersion
    verifiers: list[str] = []
    torch_version: str = ""
    guards_code: list[str] = []
    dialect: str | None = None  # up to torch 2.4


class PayloadMeta(Strict):
    """One tensor or object of `data/weights/` or `data/constants/`."""

    path_name: str
    is_param: bool
    use_pickle: bool
    tensor_meta: TensorMeta | None = None


class PayloadConfig(Strict):
    """A `*_config.json` beside weights or constants."""

    config: dict[str, PayloadMeta]


class TreeSpec(Strict):
    """A node of `in_spec` and `out_spec`, which are JSON within the JSON."""

    type: str | None
    context: str | dict[str, object] | None
    children_spec: list["TreeSpec"]
