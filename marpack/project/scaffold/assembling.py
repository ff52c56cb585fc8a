"""A proposal's files, ready to be written."""

from pathlib import Path
from typing import Any

from marpack.project.scaffold.placing import Source
from marpack.project.scaffold.proposal import Proposal
from marpack.project.scaffold.template import render


def assemble(proposal: Proposal, templates: Path, *, for_new: bool = True) -> dict[str, Source]:
    """Return every file that the project gets, by its name below the project's folder.

    Args:
        proposal: From `propose`.
        templates: The folder of marpack's templates.
        for_new: Bring samples along, which the marpack.yaml that is there already would not name.
    """
    values = _values(proposal)
    files: dict[str, Source] = {}
    for name in proposal.made:
        own = name.endswith(".py") and name != "test_model.py"
        source = f"{proposal.template.name}/handler.py.j2" if own else f"{name}.j2"
        files[name] = render(templates, source, values)
    return files | proposal.brought | (proposal.samples.brought if for_new else {})


def _values(proposal: Proposal) -> dict[str, Any]:  # Any: what the template files ask for
    """Return what the template files are rendered with."""
    template, fit = proposal.template, proposal.fit
    is_toy = proposal.kind is None
    return {
        "name": proposal.name,
        "version": proposal.version,
        "weights": proposal.weights,
        "kind": proposal.kind.value if proposal.kind else None,
        "toy": is_toy,
        "model": " ".join(template.model.split()),
        "model_file": proposal.model_file,
        "handler": proposal.handler,
        "built_in": proposal.built_in,
        "made": proposal.made,
        "labels": proposal.labels,
        "requirements": proposal.requirements,
        "target": proposal.target.value if proposal.target else None,
        "files": list(proposal.files),
        "config_file": proposal.config,
        "batch_size": 4 if is_toy and template.name != "text_classifier" else 1,
        "samples": list(proposal.samples.listed),
        "stand_ins": proposal.samples.stand_ins,
        "test": template.test.strip(),
        "handler_import": template.handler_import,
        "handler_test": template.handler_test.strip(),
        "title": template.title,
        "classes": fit.classes,
        "topk": min(fit.classes or 5, 5),
        "onnx": template.name == "onnx",
        "pictures": fit.pictures and not is_toy,
        "gray": fit.gray and not is_toy,
    }
