import copy
import sys

import pytest
import torch

from marpack.worker.loaders.compilation import CompileError, Pt2Error, compile_model, options_of
from marpack.worker.notes import drain_timings


@pytest.mark.parametrize(
    ("pt2", "wanted"),
    [
        ("inductor", {"backend": "inductor"}),
        ("nonsense", {"backend": "nonsense"}),
        ({}, {}),
        ({"backend": "inductor", "mode": "reduce-overhead"}, {"backend": "inductor", "mode": "reduce-overhead"}),
        ({"compile": {"enable": True}}, {}),
        ({"compile": {"enable": False, "backend": "inductor"}}, None),
        ({"compile": {"enable": "true", "backend": "inductor"}}, None),
        (
            {"compile": {"enable": True, "backend": "openvino", "fullgraph": True, "options": {"device": "CPU"}}},
            {"backend": "openvino", "fullgraph": True, "options": {"device": "CPU"}},
        ),
        ({"export": {"aot_compile": True}}, None),
        ({"export": {}, "compile": {"enable": True, "backend": "eager"}}, {"backend": "eager"}),
    ],
)
def test_every_spelling(pt2, wanted):
    after = copy.deepcopy(pt2)
    if isinstance(pt2, dict) and pt2.get("compile", {}).get("enable") is True:
        del after["compile"]["enable"]  # as the server leaves the config that handlers read
    assert options_of(pt2) == wanted
    assert pt2 == after


def test_what_the_server_stumbles_over(notes):
    pt2 = {"backend": "inductor"}
    options_of(pt2)["mode"] = "default"
    assert pt2 == {"backend": "inductor"}
    for wrong, exception in ((None, TypeError), (3, TypeError), ("compile", TypeError), ({"compile": {}}, KeyError)):
        with pytest.raises(exception):
            options_of(wrong)
        assert "compile: {enable: true" in notes()["pt2-unreadable"].hint
    with pytest.raises(Pt2Error, match="pt2 is a list") as failure:
        options_of(["inductor"])
    assert isinstance(failure.value, ValueError)


SKIPPED = [
    ({"backend": "nope"}, "nope is not a backend", "inductor"),
    ({"backend": "nvfuser"}, "Invalid backend: 'nvfuser'", "inductor"),
    ({"mode": "bogus"}, "Unrecognized mode=bogus", "(mode)"),
    ({"color": 1}, "unexpected keyword argument 'color'", "(color)"),
    ({"options": {"cpp.cxx": ["true"]}}, "cpp.cxx of torch.compile can run", "cpp.cxx"),
    (
        {"backend": "inductor", "options": {"cpp.enable_floating_point_contract_flag": "off -wrapper true"}},
        "can run a program",
        "cpp.enable",
    ),
    ({"options": {"max_autotune_gemm_backends": "ATEN -wrapper true"}}, "can run a program", "max_autotune"),
    ({"options": {"bogus": 1}}, "Unexpected optimization option bogus", "(options)"),
]


@pytest.mark.parametrize(("options", "message", "hint"), SKIPPED)
def test_what_the_server_skips_runs_uncompiled_and_is_noted_or_an_error_under_target_marpack(
    net, notes, options, message, hint
):
    assert compile_model(net, options, strict=False) is net
    trouble = notes()["not-compiled"]
    assert message in trouble.message
    assert len(trouble.message) < 400
    with pytest.raises(CompileError) as failure:
        compile_model(net, options, strict=True)
    assert message in failure.value.what
    assert hint in trouble.hint == failure.value.hint


def test_torchscript_is_not_compiled(tmp_path, notes):
    torch.jit.trace(torch.nn.Identity(), torch.zeros(1)).save(tmp_path / "w.pt")
    script = torch.jit.load(tmp_path / "w.pt")
    assert compile_model(script, {}, strict=False) is script
    assert "TorchScript" in notes()["not-compiled"].hint


def test_compiling_is_timed_apart_and_graph_breaks_are_told(net, notes):
    torch._dynamo.reset()

    class Talking(torch.nn.Module):
        def forward(self, numbers):
            torch._dynamo.graph_break()
            return net(numbers)

    model = compile_model(Talking(), {"backend": "eager"}, strict=True)
    drain_timings()
    assert model(torch.ones(1, 3)).tolist() == [[6.0, 1.0]]
    assert drain_timings()["compile"] > 0
    assert "graph" in notes()["graph-break"].message
    model(torch.ones(1, 3))
    assert "compile" not in drain_timings()


@pytest.mark.slow
def test_inductor_answers_as_eager_does(net):
    torch._dynamo.reset()
    model = compile_model(net, {"backend": "inductor"}, strict=True)
    with torch.inference_mode():
        torch.testing.assert_close(model(torch.ones(1, 3)), net(torch.ones(1, 3)))
    assert drain_timings()["compile"] > 100


def test_a_backend_of_another_package_is_imported_first(net, notes, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    compile_model(net, {"backend": "tensorrt"}, strict=False)
    assert notes().keys() == {"backend-missing", "not-compiled"}
    (tmp_path / "torch_tensorrt.py").write_text(
        "import torch\n\n"
        "@torch._dynamo.register_backend(name='tensorrt')\n"
        "def backend(graph, inputs):\n    return graph.forward\n"
    )
    assert compile_model(net, {"backend": "tensorrt"}, strict=True)(torch.ones(1, 3)).tolist() == [[6.0, 1.0]]
    assert not notes()
    sys.modules.pop("torch_tensorrt")
