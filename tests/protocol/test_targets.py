"""The two targets and the settings of a handler."""

import copy
import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

from marpack.protocol.targets import (
    HandlerSettings,
    Target,
    TargetDifference,
    keep_settings,
    settings_for,
    settings_of,
)
from marpack.torchserve.context import Context


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
