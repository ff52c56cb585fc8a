"""What loading a torch.export program runs, and that none of it is taken for safe."""

import io
import json
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lazy import torch
from weights import exports
from weights.exports import (
    Change,
    changed,
    description_of,
    members_of,
    texts_of,
    with_guard,
    with_node,
    with_signature,
    with_size,
)

from marpack.weights import exported_scan
from marpack.weights.contents import TorchZip
from marpack.weights.exported_scan import (
    ExportedScan,
    OperatorKind,
    guard_problem,
    is_plain_text,
    operator_kind,
    scan_exported,
    symbolic_problem,
)
from marpack.weights.pickle import OpcodeBudget


def scan(path: Path, **options: Any) -> ExportedScan:
    with path.open("rb") as file:
        archive = TorchZip(file)
        assert archive.is_exported
        return scan_exported(archive, OpcodeBudget(), **options)


def is_dangerous(path: Path) -> bool:
    return any(problem.is_dangerous for problem in scan(path).problems)


def names(entries: Any) -> set[str]:
    return {entry.name.partition("/")[2] for entry in entries}


def test_an_honest_program_has_no_problems(dynamic_file: Path, exported_file: Path) -> None:
    found = scan(dynamic_file)
    assert found.problems == scan(exported_file).problems == ()
    assert names(found.numbers) == {"data/weights/weight_0", "data/weights/weight_1"}
    assert names(found.pickles) == {"data/sample_inputs/model.pt"}


def load_and_run(path: Path) -> None:
    """Do what a handler does with a program; its errors do not matter, as code may have run before."""
    try:
        module = torch.export.load(path).module()
        module(torch.ones(3, 4), torch.ones(3, 4))
    except Exception:  # noqa: BLE001 - what a hostile file raises may be anything
        pass


RUN = "__import__('os').mkdir({!r})"
ENUM = {"__enum__": True, "fqn": "os:environ", "name": "MARPACK_TEST"}


@pytest.mark.parametrize(
    "change",
    [
        with_size(RUN),
        with_size(f"(lambda: {RUN})()"),
        with_size(f"[{RUN}][0]"),
        with_size(f"{RUN} if 1 else 0"),
        with_size(f"Symbol('s0', integer={RUN})"),
        with_size(f"Max({RUN}, 1)"),
        with_size(f"(1, {RUN})[0]"),
        with_size(f'Max(sympify("{RUN}"), 1)'),
        with_size(f'Add(Symbol("s0"), f"{{{RUN}}}")'),
        with_guard(RUN),
        with_guard(f"L['x'].size()[0] >= 0 and {RUN} is None"),
    ],
)
def test_text_that_torch_runs_is_dangerous(change: Any, small_program: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    def filled(program: dict[str, Any]) -> None:
        change(program)
        text = json.dumps(program).replace("{!r}", repr(str(marker)))
        program.clear()
        program.update(json.loads(text))

    path = changed(small_program, tmp_path / "evil.pt2", filled)
    load_and_run(path)
    assert marker.exists(), "the payload does not run, so that the test proves nothing"
    assert is_dangerous(path)


def test_a_description_of_containers_imports_what_it_names(
    small_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_by_a_treespec.py").write_text("import os\nos.mkdir(os.environ['MARKER'])\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MARKER", str(tmp_path / "ran"))
    context = json.dumps({**ENUM, "fqn": "imported_by_a_treespec:os"})
    spec = json.dumps([1, {"type": "builtins.dict", "context": context, "children_spec": []}])
    path = changed(small_program, tmp_path / "evil.pt2", with_signature(out_spec=spec))
    load_and_run(path)
    assert (tmp_path / "ran").exists()
    assert is_dangerous(path)


def test_a_key_of_the_example_inputs_is_pasted_into_a_guard(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
            return x["a"] + 1

    marker = tmp_path / "ran"
    inputs = {"a": torch.ones(3, 4)}
    torch.export.save(torch.export.export(Net(), (inputs,)), tmp_path / "good.pt2")
    key = f"""'"+str(__import__("os").mkdir("{marker}"))+\""""
    members = members_of(tmp_path / "good.pt2")
    evil = io.BytesIO()
    torch.save((({key: torch.ones(3, 4)},), {}), evil)
    with zipfile.ZipFile(tmp_path / "evil.pt2", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, evil.getvalue() if "sample_inputs" in name else data)
    with suppress(OSError):  # the guard runs for each dimension
        torch.export.load(tmp_path / "evil.pt2").module()({"a": torch.ones(3, 4)})
    assert marker.exists()
    assert not scan(tmp_path / "good.pt2").problems
    assert is_dangerous(tmp_path / "evil.pt2")


@pytest.mark.parametrize(
    "change",
    [
        with_node(target="torch.os.system"),
        with_node(target="torch.ops.load_library"),
        with_node(name="y=print()"),
        with_node(outputs=[{"as_tensor": {"name": "y; print()"}}]),
        with_node(inputs=[{"name": "x=1, y", "arg": {"as_none": True}, "kind": 2}]),
        with_node(inputs=[{"name": "f", "arg": {"as_operator": "torch.load"}, "kind": 1}]),
        with_node(inputs=[{"name": "f", "arg": {"as_sym_int": {"as_name": "x[print()]"}}, "kind": 1}]),
        with_node(inputs=[{"name": "f", "arg": {"as_string_to_argument": {"k": {"as_operator": "os"}}}, "kind": 1}]),
        with_signature(forward_arg_names=["x", "y=print()"]),
        with_signature(in_spec='[1, {"type": "builtins.dict", "context": "[\\"a\'b\\"]", "children_spec": []}]'),
        with_signature(out_spec='[1, {"type": "builtins.list", "context": "{\\"a\\": 1}", "children_spec": []}]'),
        lambda program: program["graph_module"]["graph"]["inputs"].append({"as_string": "' + str(print()) + '"}),
        lambda program: program["graph_module"]["signature"]["input_specs"].append(
            {"constant_input": {"name": "c", "value": {"as_string": "'"}}}
        ),
        lambda program: program["graph_module"]["signature"]["input_specs"].append(
            {"parameter": {"arg": {"name": "p"}, "parameter_name": 'a", print(), "b'}}
        ),
        lambda program: program["graph_module"]["module_call_graph"].append({"fqn": 'a"', "signature": None}),
        lambda program: program["graph_module"].update(treespec_namedtuple_fields={"t": {"field_names": ["a b"]}}),
    ],
)
def test_text_that_leaves_its_place_in_source_is_dangerous(change: Change, small_program: Path, tmp_path: Path) -> None:
    assert is_dangerous(changed(small_program, tmp_path / "evil.pt2", change))


def test_arguments_by_name_are_identifiers(small_program: Path, tmp_path: Path) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    empty = {"type": "builtins.tuple", "context": "null", "children_spec": []}
    for key, dangerous in [("x", False), ("x=print()", True)]:
        named = {"type": "builtins.dict", "context": json.dumps([key]), "children_spec": [leaf]}
        spec = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [empty, named]}])
        assert is_dangerous(changed(small_program, tmp_path / "n.pt2", with_signature(in_spec=spec))) is dangerous


@pytest.mark.parametrize(
    "change",
    [
        with_node(target="torch.ops.torchvision.nms.default"),
        with_node(further=1),
        with_node(further={}),
        with_node(inputs=[{"name": "x", "arg": {"as_int": {"as_none": True}}, "kind": 1}]),
        with_node(inputs=[{"name": "x", "arg": "text", "kind": 1}]),
        with_node(metadata=[{"a": "b"}, {"c": 1, "d": {}}, "e"]),
        with_node(name=3),
        with_node(inputs=[{"name": "x", "arg": {"as_int": "print()"}, "kind": 1}]),
        with_signature(out_spec='[1, {"type": "my.Type", "context": "null", "children_spec": []}]'),
        with_signature(out_spec="no JSON"),
        lambda program: program.update(later_code=["print()"]),
        lambda program: program.pop("graph_module"),
        lambda program: program.update(range_constraints={"s0": {"min_val": "print()", "max_val": None}}),
    ],
)
def test_what_is_not_known_is_no_danger_and_not_safe(change: Change, small_program: Path, tmp_path: Path) -> None:
    found = scan(changed(small_program, tmp_path / "odd.pt2", change)).problems
    assert found
    assert not any(problem.is_dangerous for problem in found)


def test_much_that_is_unknown_does_not_hide_what_is_dangerous(small_program: Path, tmp_path: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes[:] = [{**nodes[0], "target": f"torch.ops.mine.op{number}.default"} for number in range(100)]
        program["guards_code"] = ["print()"] * 100

    found = scan(changed(small_program, tmp_path / "m.pt2", change)).problems
    assert {problem.is_dangerous for problem in found} == {False, True}
    assert len(found) < 50


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"graph_module": NaN}'])
def test_a_damaged_description_is_not_safe(content: bytes, small_program: Path, tmp_path: Path) -> None:
    assert scan(changed(small_program, tmp_path / "m.pt2", lambda _: None, **{"models/more.json": content})).problems


def test_a_description_that_is_too_large_is_not_safe(small_program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_scan, "JSON_LIMIT", 100)
    assert {problem.is_dangerous for problem in scan(small_program).problems} == {False}


def test_what_compressed_members_expand_to_is_bounded(small_program: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members_of(small_program).items():
            archive.writestr(name, data)
    found = scan(path)
    assert not found.problems
    assert found.expanded > 4000
    assert not scan(path, limit=found.expanded).problems
    assert {problem.is_dangerous for problem in scan(path, limit=found.expanded - 1).problems} == {False}
    assert scan(small_program).expanded == 0


@pytest.mark.parametrize("name", ["models/b.json", "MODELS/model.json", "models/no-suffix", "Models/a/b.JSON"])
def test_every_spelling_of_a_description_is_read(name: str, small_program: Path, tmp_path: Path) -> None:
    evil = exports.description_of(small_program)
    with_guard("print()")(evil)
    files = {name: json.dumps(evil).encode()}
    assert is_dangerous(changed(small_program, tmp_path / "m.pt2", lambda _: None, **files))


def test_the_second_of_two_members_of_a_name_is_read(small_program: Path, tmp_path: Path) -> None:
    path = changed(small_program, tmp_path / "m.pt2", lambda _: None)
    evil = exports.description_of(small_program)
    with_guard("print()")(evil)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("small/models/model.json", json.dumps(evil))
    assert is_dangerous(path)


def test_the_old_format_is_read(small_program: Path, tmp_path: Path) -> None:
    program = exports.description_of(small_program)
    path = tmp_path / "old.pt2"
    for guards, dangerous in [([], False), (["print()"], True)]:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("serialized_exported_program.json", json.dumps({**program, "guards_code": guards}))
            for name in ("state_dict.pt", "constants.json", "example_inputs.pt"):
                archive.writestr(f"serialized_{name}", b"")
            archive.writestr("version", "8.1")
        found = scan(path)
        assert {problem.is_dangerous for problem in found.problems} == ({True} if dangerous else set())
        assert {entry.name for entry in found.pickles} == {
            *("serialized_state_dict.pt", "serialized_constants.json", "serialized_example_inputs.pt")
        }


def configured(path: str, *, use_pickle: bool) -> bytes:
    meta = {"path_name": path, "is_param": True, "use_pickle": use_pickle, "tensor_meta": None}
    return json.dumps({"config": {"w": meta}}).encode()


@pytest.mark.parametrize(
    ("folder", "path", "use_pickle", "is_number"),
    [
        ("weights", "weight_0", False, True),
        ("weights", "weight_0", True, False),
        ("weights", "other", False, False),
        ("constants", "tensor_0", False, True),
        ("constants", "tensor_0", True, False),
        ("constants", "opaque_obj_0", False, False),
        ("constants", "custom_obj_0", False, False),
    ],
)
def test_numbers_are_what_the_config_calls_so(
    folder: str, path: str, use_pickle: bool, is_number: bool, small_program: Path, tmp_path: Path
) -> None:
    files = {
        f"data/{folder}/model_{folder}_config.json": configured(path, use_pickle=use_pickle),
        f"data/{folder}/{path}": pickle.dumps(print),
    }
    found = scan(changed(small_program, tmp_path / "m.pt2", lambda _: None, **files))
    assert (f"data/{folder}/{path}" in names(found.numbers)) is is_number
    assert (f"data/{folder}/{path}" in names(found.pickles)) is not is_number


def test_one_config_that_unpickles_a_member_is_enough(small_program: Path, tmp_path: Path) -> None:
    files = {
        "data/weights/a_weights_config.json": configured("weight_0", use_pickle=True),
        "data/weights/b_weights_config.json": configured("weight_0", use_pickle=False),
        "data/weights/weight_0": b"",
    }
    found = scan(changed(small_program, tmp_path / "m.pt2", lambda _: None, **files))
    assert "data/weights/weight_0" in names(found.pickles)


def test_a_payload_lies_in_its_folder(small_program: Path, tmp_path: Path) -> None:
    files = {"data/weights/m_weights_config.json": configured("../extra/x", use_pickle=True)}
    assert is_dangerous(changed(small_program, tmp_path / "m.pt2", lambda _: None, **files))


WRITTEN = (
    *("Add", "Mul", "Mod", "PythonMod", "FloorDiv", "Pow", "PowByNatural", "FloatPow", "Max", "Min", "ToFloat"),
    *("TruncToInt", "IntTrueDiv", "StrictLessThan", "GreaterThan", "Symbol", "Integer", "Float"),
)


def test_all_that_torch_writes_is_inside(dynamic_file: Path) -> None:
    program = description_of(dynamic_file)
    sizes, guards, operators = (texts_of(program, key) for key in ("expr_str", "guards_code", "target"))
    assert len(sizes) > 20
    assert len(guards) > 8
    assert all(any(f"{name}(" in text for text in sizes) for name in WRITTEN)
    assert [(text, symbolic_problem(text)) for text in sizes if symbolic_problem(text)] == []
    assert [(text, guard_problem(text)) for text in guards if guard_problem(text)] == []
    assert {text for text in operators if operator_kind(text) is not OperatorKind.COMPUTES} == set()


@pytest.mark.parametrize(
    "text",
    [
        "2*s0 + 1",  # as torch wrote sizes at first
        "Eq(s0, 2)",
        "((s0 - 1)//2) + 1",
        "Max(0, s0) - -1",
        "u0 <= 9223372036854775807",
        "-oo",
        "Symbol('s0', integer=True, positive=True)",
        "Rational(1, 2)",
        "Piecewise(ExprCondPair(Integer(1), s0 > 1))",
    ],
)
def test_older_spellings_are_inside(text: str) -> None:
    assert symbolic_problem(text) is None


HOSTILE_SIZES = [
    *"""
    __import__('os').system('id') Symbol('s0').__class__ s0.is_integer ().__class__.__base__.__subclasses__()
    [1][0] f'{s0}' b'1' 's0' 1j ... None sympify('1') S('1') parse_expr('1') Function('f')(s0) Symbol(s0)
    Max(*s0) Integer('1') Float('x') Max os eval print(1) exec('1') s0! 9**9**9 2**65 Float('1e999999999')
    """.split(),  # noqa: SIM905 - a list of words reads best as words
    "(lambda: 1)()",
    "[s0 for s0 in (1,)]",
    "{1: 2}",
    "(1, 2)",
    "s0 if s0 else s1",
    "s0 and s1",
    "(s0 := 1)",
    "lambdify([], '1')",
    "Symbol('__import__(\"os\")')",
    "Symbol('a b')",
    "Symbol('s0', integer=s1)",
    "Symbol('s0', cls=True)",
    "Symbol('s0', **Max)",
    "Max(1, key=s0)",
    "Float('1', precision=s0)",
    "s0; s1",
    "s0\ns1",
    "s0 # 1",
    "s0 \\",
    "await s0",
    "s0 in s1",
    "s0 is s1",
    "s0 @ s1",
    "",
    " ",
    "\uff2dax(1, 2)",
    "Pow(10, Pow(10, 10))",
    "PowByNatural(2, Integer(100000))",
    "LShift(1, 1000000)",
    "1 << 1000000",
    "FloatPow(2.0, Float('1e300', precision=53))",
    "2**(s0 + 1000)",
    "Pow(Pow(Pow(Pow(s0, 9), 9), 9), 9)",
    "1" * 40,
    "(" * 200 + "s0" + ")" * 200,
    "-" * 15_000 + "s0",
    "+".join(["s0"] * 10_000),
]


@pytest.mark.parametrize("text", HOSTILE_SIZES)
def test_hostile_sizes_are_outside(text: str) -> None:
    assert symbolic_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "L['x'].size()[0] >= 2",
        "L['x']['a b'][0].size()[1] == L['y'].stride()[0]",
        "L['x'].storage_offset() == 0 and not L['y'].dim() > 3 or True",
        "((-1) + L['x'].size()[2]) // 4 != 1",
        "math.trunc(torch._sym_sqrt(torch.sym_float(L['x'].size()[0]))) == 5",
        "L['mode'] == 'bilinear'",
        "L['x'] == math.inf",
        "max(L['x'].size()[0], 3) == (1 if L['n'] else 2)",
        "Eq(Mod(L['x'].size()[0], 2), 0)",
        "L['flat_args'][0].field.size()[0] == 1",
    ],
)
def test_guards_that_compare_are_inside(text: str) -> None:
    assert guard_problem(text) is None


HOSTILE_GUARDS = [
    *"""
    __import__('os').system('id') L['x'].__class__ L['x'].field.__init__.__globals__['os'] L['x'].data_ptr()
    L['x'].size(L) L[print()] L torch.load('x') torch.ops math.__loader__ math.ceil.__self__ open('x')
    L['x'].size()[0:1] 2**10**10
    """.split(),  # noqa: SIM905 - a list of words reads best as words
    "L['x'].size()[0] > 1 and exec('1')",
    "L['x'].size()[0]) or print((1",
    "L['x'].size()[0] == 3, print()",
    "1 # comment",
    "(lambda: 1)()",
    "[1 for _ in L]",
    "L['x'].size()[0] == \"a\"",
    "L['\\x27'] == 1",
    "x == 1",
    "int('1', base=2)",
    "(x := 1)",
    "L['x']\n",
]


@pytest.mark.parametrize("text", HOSTILE_GUARDS)
def test_guards_that_run_code_are_outside(text: str) -> None:
    assert guard_problem(text)


OPERATORS = {
    OperatorKind.COMPUTES: """
        torch.ops.aten.add.Tensor torch.ops.prims.convert_element_type.default torch.ops.higher_order.cond
        _operator.getitem math.ceil torch.sym_max torch.amp.autocast_mode._enter_autocast
    """,
    OperatorKind.FOREIGN: """
        torch.ops.torchvision.nms.default torch.ops.higher_order.triton_kernel_wrapper_mutation
        torch.ops.higher_order.inline_asm_elementwise
    """,
    OperatorKind.DANGEROUS: """
        torch.ops.aten.save.default torch.ops.aten.from_file.out torch.ops.aten.add torch.ops.load_library
        torch.ops.aten.add.default.__class__ torch.os.system torch.load torch.hub.load math.__loader__.load_module
        _operator.methodcaller _operator.attrgetter #ext:op os.system
    """,
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in OPERATORS.items() for name in names.split()]
)
def test_operators_are_known_by_name(name: str, kind: OperatorKind) -> None:
    assert operator_kind(name) is kind
    assert operator_kind("") is OperatorKind.DANGEROUS


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [("a b/c-d", True), ("größe", True), ("'", False), ('"', False), ("\\", False), ("\n", False), ("\u2028", False)],
)
def test_plain_text_stays_within_its_quotes(text: str, is_plain: bool) -> None:
    assert is_plain_text(text) is is_plain
