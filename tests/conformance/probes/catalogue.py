"""Every probe, those of one server setting together, so that the server is started as seldom as possible."""

from collections import Counter
from importlib import import_module

from conformance.probe import Probe
from conformance.probes import rows, sizes

_MODULES = (
    "rows forms returns responses failures entries contexts batches streams metrics names models builtins texts"
    " manifests examples envelopes sizes surroundings"
)


def _collected() -> tuple[Probe, ...]:
    modules = [import_module(f"conformance.probes.{name}") for name in _MODULES.split()]
    probes = [probe for module in modules for probe in module.PROBES]
    for given in ([probe.name for probe in probes], *([call.name for call in probe.calls] for probe in probes)):
        twice = [name for name, count in Counter(given).items() if count > 1]
        assert not twice, f"named twice: {twice}"
    return tuple(sorted(probes, key=lambda probe: (probe.envelope or "", sorted(probe.settings))))


PROBES = _collected()
# What the server's frontend answers before a worker hears of it.
FRONTEND = (rows.REFUSED_FORMS, sizes.REFUSED)
