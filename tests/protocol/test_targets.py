"""Every row of the table of differences is held by tests for both targets; this one holds the table against them."""

import ast
import copy
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from marpack.protocol.targets import (
    HandlerSettings,
    Target,
    TargetDifference,
    keep_settings,
    settings_for,
    settings_of,
)
from marpack.torchserve.context import Context

TESTS = Path(__file__).parents[1]
CLASSIFIER, LOADING = "worker/handlers/test_vision.py", "worker/handlers/test_loading.py"
TEXT, DETECTOR = "worker/handlers/test_text.py", "worker/handlers/test_detector_and_segmenter.py"
RUN, MICRO = "cli/test_run.py", "worker/handlers/test_micro_batching.py"
ASYNC = "worker/test_asynchronous.py"

# row → the test that shows the server's way, and the one that shows marpack's
HELD = {
    TargetDifference.TOPK_CLAMPED: (f"{CLASSIFIER}::test_too_few_classes",) * 2,
    TargetDifference.PICTURES_CONVERTED: (
        f"{CLASSIFIER}::test_what_the_server_refuses_is_refused_with_reason_and_fix",
        f"{CLASSIFIER}::test_target_marpack_takes_pictures_of_any_mode",
    ),
    TargetDifference.PT2_ERRORS: (f"{LOADING}::test_an_unknown_backend",) * 2,
    TargetDifference.MORE_FORMATS: (
        f"{LOADING}::test_refused_as_on_the_server_with_reason_and_fix",
        f"{LOADING}::test_loaded",
    ),
    TargetDifference.ONNX_SESSION: (f"{LOADING}::test_a_session_cannot_be_called_on_the_server",) * 2,
    TargetDifference.TEXT_BATCHES: (
        f"{TEXT}::test_the_server_answers_one_request_a_batch",
        f"{TEXT}::test_target_marpack_answers_whole_batches",
    ),
    TargetDifference.MANIFEST_ENVELOPE: (f"{RUN}::test_an_envelope_is_the_servers_setting_not_the_manifests",) * 2,
    TargetDifference.PLAIN_VOCABULARIES: (f"{TEXT}::test_no_vocabulary", f"{TEXT}::test_vocabularies_without_pickles"),
    TargetDifference.TORCHVISION_OPERATORS: (f"{LOADING}::test_torchvision_is_imported_where_the_server_imports_it",)
    * 2,
    TargetDifference.HANDLER_OPTIONS: (
        f"{CLASSIFIER}::test_options_of_the_config_are_nothing_to_the_server",
        f"{CLASSIFIER}::test_options_of_the_config_under_target_marpack",
    ),
    TargetDifference.MICRO_BATCH_FAILURES: (f"{MICRO}::test_a_failing_stage_hangs_the_server_and_is_told_by_marpack",)
    * 2,
    TargetDifference.LOST_ANSWERS: (
        f"{ASYNC}::test_a_task_that_fails_is_forgotten_and_the_worker_lives",
        f"{ASYNC}::test_target_marpack_answers_all_the_same",
    ),
}


@pytest.mark.parametrize("difference", TargetDifference, ids=lambda difference: difference.name)
def test_each_row_is_held_for_both_targets(difference: TargetDifference):
    for node in HELD[difference]:
        file, _, name = node.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert name in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}, node


def test_only_marpacks_own_target_has_differences():
    assert all(Target.MARPACK.has(difference) for difference in TargetDifference)
    assert not any(Target.TORCHSERVE.has(difference) for difference in TargetDifference)
    assert all(difference.what and difference.torchserve and difference.marpack for difference in TargetDifference)


def test_settings_belong_to_their_own_context_and_show_in_none_of_its_attributes():
    context, other = (Context("m", "/m", {}, 1, None, "0.12.0") for _ in range(2))
    before = dict(vars(context))
    settings = HandlerSettings(Target.MARPACK, trust_pickle=True)
    keep_settings(context, settings)
    assert settings_of(context) is settings_for(SimpleNamespace(context=context)) is settings
    assert settings_of(copy.deepcopy(context)) == settings
    assert settings_of(other) == settings_of(MagicMock()) == settings_for(object()) == HandlerSettings()
    assert vars(context) == before


def test_settings_are_found_in_every_thread():
    owner, found = Context("m", "/m", {}, 1, None, "0.12.0"), []
    keep_settings(owner, HandlerSettings(trust_pickle=True))
    thread = threading.Thread(target=lambda: found.append(settings_for(owner).trust_pickle))
    thread.start()
    thread.join()
    assert found == [True]
