"""The grammars of the text in a torch.export program: what torch writes is inside, what runs code is outside."""

from pathlib import Path

import pytest
from weights.exports import description_of, texts_of

from marpack.weights.expressions import (
    OperatorKind,
    guard_problem,
    is_plain_text,
    operator_kind,
    symbolic_problem,
)

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


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "Symbol('s0').__class__",
        "s0.is_integer",
        "().__class__.__base__.__subclasses__()",
        "(lambda: 1)()",
        "[s0 for s0 in (1,)]",
        "[1][0]",
        "{1: 2}",
        "(1, 2)",
        "s0 if s0 else s1",
        "s0 and s1",
        "(s0 := 1)",
        "f'{s0}'",
        "b'1'",
        "'s0'",
        "1j",
        "...",
        "None",
        "sympify('1')",
        "S('1')",
        "parse_expr('1')",
        "lambdify([], '1')",
        "Function('f')(s0)",
        "Symbol('__import__(\"os\")')",
        "Symbol('a b')",
        "Symbol(s0)",
        "Symbol('s0', integer=s1)",
        "Symbol('s0', cls=True)",
        "Symbol('s0', **Max)",
        "Max(*s0)",
        "Max(1, key=s0)",
        "Integer('1')",
        "Float('x')",
        "Float('1', precision=s0)",
        "Max",
        "os",
        "eval",
        "print(1)",
        "exec('1')",
        "s0; s1",
        "s0\ns1",
        "s0 # 1",
        "s0 \\",
        "s0!",
        "await s0",
        "s0 in s1",
        "s0 is s1",
        "s0 @ s1",
        "",
        " ",
        "\uff2dax(1, 2)",
        "9**9**9",
        "Pow(10, Pow(10, 10))",
        "2**65",
        "PowByNatural(2, Integer(100000))",
        "LShift(1, 1000000)",
        "1 << 1000000",
        "FloatPow(2.0, Float('1e300', precision=53))",
        "Float('1e999999999')",
        "2**(s0 + 1000)",
        "Pow(Pow(Pow(Pow(s0, 9), 9), 9), 9)",
        "1" * 40,
        "(" * 200 + "s0" + ")" * 200,
        "-" * 15_000 + "s0",
        "+".join(["s0"] * 10_000),
    ],
)
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


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "L['x'].size()[0] > 1 and exec('1')",
        "L['x'].size()[0]) or print((1",
        "L['x'].size()[0] == 3, print()",
        "1 # comment",
        "L['x'].__class__",
        "L['x'].field.__init__.__globals__['os']",
        "L['x'].data_ptr()",
        "L['x'].size(L)",
        "L[print()]",
        "L",
        "torch.load('x')",
        "torch.ops",
        "math.__loader__",
        "math.ceil.__self__",
        "open('x')",
        "(lambda: 1)()",
        "[1 for _ in L]",
        "L['x'].size()[0] == \"a\"",
        "L['\\x27'] == 1",
        "L['x'].size()[0:1]",
        "x == 1",
        "int('1', base=2)",
        "(x := 1)",
        "2**10**10",
        "L['x']\n",
    ],
)
def test_guards_that_run_code_are_outside(text: str) -> None:
    assert guard_problem(text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.ops.aten.add.Tensor", OperatorKind.COMPUTES),
        ("torch.ops.prims.convert_element_type.default", OperatorKind.COMPUTES),
        ("torch.ops.higher_order.cond", OperatorKind.COMPUTES),
        ("_operator.getitem", OperatorKind.COMPUTES),
        ("math.ceil", OperatorKind.COMPUTES),
        ("torch.sym_max", OperatorKind.COMPUTES),
        ("torch.amp.autocast_mode._enter_autocast", OperatorKind.COMPUTES),
        ("torch.ops.torchvision.nms.default", OperatorKind.FOREIGN),
        ("torch.ops.higher_order.triton_kernel_wrapper_mutation", OperatorKind.FOREIGN),
        ("torch.ops.higher_order.inline_asm_elementwise", OperatorKind.FOREIGN),
        ("torch.ops.aten.save.default", OperatorKind.DANGEROUS),
        ("torch.ops.aten.from_file.out", OperatorKind.DANGEROUS),
        ("torch.ops.aten.add", OperatorKind.DANGEROUS),
        ("torch.ops.load_library", OperatorKind.DANGEROUS),
        ("torch.ops.aten.add.default.__class__", OperatorKind.DANGEROUS),
        ("torch.os.system", OperatorKind.DANGEROUS),
        ("torch.load", OperatorKind.DANGEROUS),
        ("torch.hub.load", OperatorKind.DANGEROUS),
        ("math.__loader__.load_module", OperatorKind.DANGEROUS),
        ("_operator.methodcaller", OperatorKind.DANGEROUS),
        ("_operator.attrgetter", OperatorKind.DANGEROUS),
        ("#ext:op", OperatorKind.DANGEROUS),
        ("os.system", OperatorKind.DANGEROUS),
        ("", OperatorKind.DANGEROUS),
    ],
)
def test_operators_are_known_by_name(name: str, kind: OperatorKind) -> None:
    assert operator_kind(name) is kind


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [("a b/c-d", True), ("größe", True), ("'", False), ('"', False), ("\\", False), ("\n", False), ("\u2028", False)],
)
def test_plain_text_stays_within_its_quotes(text: str, is_plain: bool) -> None:
    assert is_plain_text(text) is is_plain
