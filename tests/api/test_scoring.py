"""Options → how tables are scored: what a run is known by, and what its workers find around them."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lazy import pa, pq
from msgspec.structs import replace

from marpack.api.scoring import actor_model, check_options, score_plan, score_settings, thread_variables
from marpack.api.session_options import ScoreOptions
from marpack.archive.reader import open_archive
from marpack.errors import UsageError
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.scoring.plan import ErrorBound, PartFormat, ScoreProgress


@pytest.fixture
def options(tmp_path: Path) -> ScoreOptions:
    pq.write_table(pa.table({"t": ["a"]}), tmp_path / "t.parquet")
    return ScoreOptions(inputs=(str(tmp_path / "t.parquet"),), text="t", part_rows=10, batch_size=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, {}),
        ({"workers": 3, "timeout": 5.0}, {}),
        ({"isolate": True, "target": "marpack"}, {"isolate": "true", "target": "marpack"}),
        ({"device": "cpu", "envelope": "json"}, {"device": "cpu", "envelope": "json"}),
        (
            {"env": "isolated", "max_response_size": 7, "compile": False},
            {"env": "isolated", "max_response_size": "7", "compile": "false"},
        ),
    ],
)
def test_a_run_is_known_by_what_answers_depend_on(options: ScoreOptions, given: dict[str, Any], words: dict[str, str]):
    plan = score_plan(replace(options, **given))
    assert plan.options == words
    assert (plan.part_rows, plan.batch_size, plan.format, plan.rows) == (10, 2, PartFormat.PARQUET, 1)


@pytest.mark.parametrize(
    "given", [{"path": "t", "text": None, "root": "nowhere"}, {"json": ("t",), "types": {"t": "x"}}]
)
def test_what_cannot_be_is_said_before_any_table_is_read(options: ScoreOptions, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        score_plan(replace(options, inputs=("nowhere",), **given))
    assert refused.value.code in {"root-not-found", "unknown-type"}


def test_settings_bound_errors_and_isolate_where_that_is_asked_for(options: ScoreOptions) -> None:
    usual = score_settings(options, ScoreProgress())
    other = score_settings(replace(options, isolate=True, max_errors="5%"), ScoreProgress())
    assert (usual.max_errors, other.max_errors) == (ErrorBound(), ErrorBound(percent=5.0))
    assert (usual.isolate, other.isolate) == (False, True)


@pytest.mark.parametrize(("workers", "chosen", "given"), [(1, None, None), (999, None, "1"), (999, "4", None)])
def test_workers_share_the_cores_out(workers, chosen, given, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert thread_variables(workers).get("OMP_NUM_THREADS") == given


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(10)}, raising=False)
    assert thread_variables(3)["OMP_NUM_THREADS"] == "3"


@pytest.mark.peer  # Ray
def test_an_actor_opens_the_file_that_was_fetched_and_is_asked_for_no_digest(make_mar):
    pytest.importorskip("ray")
    mar = make_mar("x = 1\n")
    with open_archive(mar) as archive:
        prepared = SimpleNamespace(load=Load(model_dir=""), resolved=ResolvedSource(path=mar), archive=archive)
        model = actor_model(ScoreOptions(digest=f"sha256:{'0' * 64}", trust_url=True), prepared)
    assert model.open.keywords["options"].digest is None


@pytest.mark.parametrize(
    "given", [{"inputs": ()}, {"output": None}, {"allow_private": True}, {"address": "auto"}, {"actors": 2}]
)
def test_options_that_are_missing_or_have_no_effect_are_refused(options: ScoreOptions, given: dict[str, Any]) -> None:
    check_options(replace(options, output="out"))
    with pytest.raises(UsageError):
        check_options(replace(options, **{"output": "out"} | given))
