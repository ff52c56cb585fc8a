"""Answers as Python gets them: each a result that shows itself, with what is to be said of what was asked."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import asdict, replace

from marpack.api.requests import Asked
from marpack.api.results import Answer, RunReport
from marpack.findings import Finding
from marpack.inspection.members import labels_of
from marpack.render.failure import Failure
from marpack.render.run import Trace, head_of
from marpack.runner.client import LoadError
from marpack.runner.inputs import Input
from marpack.runner.results import AnsweredInput, Result, RunStatistics, answered_inputs
from marpack.runner.session import Session


def noted(answered: AnsweredInput) -> Result:
    """Return a result with the note on what was asked, where there is one."""
    note = answered.input.note if isinstance(answered.input, Asked) else None
    result = answered.result
    return result if note is None else replace(result, troubles=(*result.troubles, note))


class ModelFacts(Struct, frozen=True):
    """What answers are shown with: the model's labels and its handler, as the manifest names it."""

    labels: Mapping[str, str]
    handler: str

    @classmethod
    def of(cls, session: Session) -> "ModelFacts":
        """Return the facts of a loaded model."""
        return cls(labels_of(session.archive), session.archive.manifest.model.handler)

    def answer(self, answered: AnsweredInput) -> Answer:
        """Return an answer that shows itself beside what was asked."""
        return Answer.to(AnsweredInput(answered.input, noted(answered)), self.labels, self.handler)


def report_of(
    session: Session, asked: Iterable[Input], findings: Iterable[Finding], *, batch_size: int, fail_fast: bool
) -> RunReport:
    """Answer everything, end the workers, and return the report; a model that could not be loaded again is in it."""
    head, statistics, results, failure = head_of(session, findings), RunStatistics(), [], None
    try:
        for answered in answered_inputs(session.pool, asked, batch_size=batch_size):
            results.append(Answer.of(noted(answered)))  # without what was asked, which need not fit into memory
            statistics.add(answered.result)
            if fail_fast and not answered.result.ok:
                session.pool.kill()  # and do not wait for what was sent ahead
                break
        session.pool.close()
    except LoadError as error:  # a worker that died could not be started again
        failure = Failure.of(error, head.archive)
    pool = session.pool
    summary = statistics.summary(restarts=pool.restarts, peak_memory=pool.peak_memory, loaded=session.loaded)
    trace = Trace.of(session, summary.answered)
    return RunReport(**asdict(head), **asdict(trace), results=tuple(results), summary=summary, failure=failure)
