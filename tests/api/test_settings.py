"""Options → how tables are scored: what a run is known by, and what its workers find around them."""

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lazy import pa, pq

from marpack.api.settings import (
    Consent,
    actor_model,
    answer_on_terminal,
    score_environment,
    score_plan,
    score_settings,
)
from marpack.archive.reader import open_archive
from marpack.errors import UnconfirmedDownloadError, UsageError
from marpack.project.source import ResolvedSource
from marpack.protocol.messages import Load
from marpack.runner.pip_sizes import Download
from marpack.scoring.plan import PartFormat
from marpack.scoring.summary import ErrorBound, ScoreProgress
from marpack.torchserve.http import MAX_BODY

NONE = ("body", "path", "url", "root", "content_type", "limit", "target", "envelope", "max_errors")
FALSE = ("explain", "allow_private", "encode_binary", "isolate")
USUAL: dict[str, Any] = {
    **dict.fromkeys(NONE),
    **dict.fromkeys(FALSE, False),
    **dict.fromkeys(("max_request_size", "max_response_size"), MAX_BODY),
    **dict.fromkeys(("json", "json_object", "headers", "keep"), ()),
    "types": {},
    "select": {},
    "text": "t",
    "format": "parquet",
    "part_rows": 10,
    "batch_size": 2,
    "device": "auto",
    "env": "current",
}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    pq.write_table(pa.table({"t": ["a"]}), tmp_path / "t.parquet")
    return USUAL | {"inputs": [str(tmp_path / "t.parquet")]}


@pytest.mark.parametrize(
    ("given", "compiled", "words"),
    [
        ({}, True, {}),
        ({"workers": 3, "timeout": 5.0}, True, {}),
        ({"isolate": True, "target": "marpack"}, True, {"isolate": "true", "target": "marpack"}),
        ({"device": "cpu", "envelope": "json"}, True, {"device": "cpu", "envelope": "json"}),
        ({"env": "isolated", "max_response_size": 7}, False,
         {"env": "isolated", "max_response_size": "7", "compile": "false"}),
    ],
)  # fmt: skip
def test_a_run_is_known_by_what_answers_depend_on(
    options: dict[str, Any], given: dict[str, Any], compiled: bool, words: dict[str, str]
) -> None:
    plan = score_plan(options | given, compiled=compiled)
    assert plan.options == words
    assert (plan.part_rows, plan.batch_size, plan.format, plan.rows) == (10, 2, PartFormat.PARQUET, 1)


@pytest.mark.parametrize(
    "given", [{"path": "t", "text": None, "root": "nowhere"}, {"json": ("t",), "types": {"t": "x"}}]
)
def test_what_cannot_be_is_said_before_any_table_is_read(options: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        score_plan(options | given | {"inputs": ["nowhere"]}, compiled=True)
    assert refused.value.code in {"root-not-found", "unknown-type"}


def test_settings_bound_errors_and_isolate_where_that_is_asked_for(options: dict[str, Any]) -> None:
    usual = score_settings(options, ScoreProgress())
    other = score_settings(options | {"isolate": True, "max_errors": "5%"}, ScoreProgress())
    assert (usual.max_errors, other.max_errors) == (ErrorBound(), ErrorBound(percent=5.0))
    assert (usual.isolate, other.isolate) == (False, True)


@pytest.mark.parametrize(("workers", "chosen", "given"), [(1, None, None), (999, None, "1"), (999, "4", None)])
def test_workers_share_the_cores_out(
    workers: int, chosen: str | None, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert score_environment(workers).get("OMP_NUM_THREADS") == given


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(10)}, raising=False)
    assert score_environment(3)["OMP_NUM_THREADS"] == "3"


def test_an_actor_opens_the_file_that_was_fetched_and_is_asked_for_no_digest(make_mar):
    pytest.importorskip("ray")
    mar = make_mar("x = 1\n")
    with open_archive(mar) as archive:
        prepared = SimpleNamespace(load=Load(model_dir=""), resolved=ResolvedSource(path=mar), archive=archive)
        model = actor_model({"digest": f"sha256:{'0' * 64}", "trust_url": True}, prepared)
    (options,) = model.open.args
    assert "digest" not in options


@pytest.mark.parametrize(
    ("size", "yes", "answer", "asks", "goes_on"),
    [
        (0, False, None, False, True),
        (500_000_000, False, None, False, True),
        (500_000_001, False, None, True, False),
        (500_000_001, False, False, True, False),
        (500_000_001, False, True, True, True),
        (500_000_001, True, None, False, True),
        (500_000_001, "no", None, True, False),  # from Python: nothing but True is a yes
        (None, False, None, True, False),
        (None, False, True, True, True),
        (None, True, None, False, True),
    ],
)
def test_a_large_download_or_one_of_unknown_size_is_confirmed(
    size: int | None, yes: bool, answer: bool | None, asks: bool, goes_on: bool
) -> None:
    asked: list[str] = []
    told: list[str] = []

    def ask(question: str) -> bool | None:
        asked.append(question)
        return answer

    consent, download = (
        Consent(yes, ask),
        Download(("big-1.0-py3-none-any.whl",), size, "" if size is not None else "why"),
    )
    if goes_on:
        consent.confirm(download, told.append)
    else:
        with pytest.raises(UnconfirmedDownloadError) as caught:
            consent.confirm(download, told.append)
        assert caught.value.exit_code == 2
        assert "--yes" in str(caught.value.hint)
    assert bool(asked) is asks
    if size != 0:
        assert ("500.0 MB" if size else "unknown") in told[0]
        assert "big-1.0" in told[0]


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "stderr", "answer"),
    [
        (Typed("y\n"), Typed(), True),
        (Typed("YES\n"), Typed(), True),
        (Typed("\n"), Typed(), False),
        (Typed(""), Typed(), False),  # Ctrl-D
        (io.StringIO("y\n"), Typed(), None),
        (Typed("y\n"), io.StringIO(), None),
        (None, Typed(), None),
    ],
)
def test_only_a_terminal_is_asked(
    stdin: io.StringIO | None, stderr: io.StringIO, answer: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("sys.stderr", stderr)
    assert answer_on_terminal("really? ") is answer
    assert stderr.getvalue() == ("" if answer is None else "really? ")
