"""Signatures on a terminal: what was signed, and who vouches for what."""

from collections.abc import Iterator

from marpack.render.console import show_findings, talk
from marpack.render.layout import clean, fact, show_page
from marpack.render.output import show
from marpack.trust import CheckClaim, Signed, Verification


def show_signed(signed: Signed, *, as_json: bool) -> None:
    """Print what was signed, and warnings on stderr."""
    show_findings(signed.findings, talk())
    if as_json:
        show(signed)
        return
    facts = (("signed", signed.archive), ("sha256", signed.sha256), ("by", str(signed.signer)))
    show_page([clean(signed.signature), *(fact(label, clean(text)) for label, text in facts)])


def show_verification(verification: Verification, *, as_json: bool) -> None:
    """Print who vouches for an archive."""
    if as_json:
        show(verification)
    else:
        show_page(_lines(verification))


def _lines(verification: Verification) -> Iterator[str]:
    yield clean(verification.archive)
    yield fact("sha256", verification.sha256)
    if verification.signer is not None:
        yield fact("signed", f"by {clean(str(verification.signer))}")
    else:
        yield fact("signed", "not asked: no signature was verified")
    if verification.check is not None:
        yield from _check_lines(verification.check)
    yield ""
    if verification.check is not None and verification.check.signer is None:
        yield "This file is said to be fit for deployment, by nobody known: a claim, not a proof."
    elif verification.check is not None:
        yield "This very file was checked, and may be deployed."
    else:
        yield "This is the file that was signed. What is in it: marpack inspect --verify."


def _check_lines(check: CheckClaim) -> Iterator[str]:
    by = f"by {check.signer}" if check.signer else "nobody signed this"
    yield fact("checked", clean(by))
    circumstances = (
        f"for {check.target}",
        f"on {check.device}" if check.device else "",
        f"{check.samples} sample{'' if check.samples == 1 else 's'}",
        f"marpack {check.marpack}" if check.marpack else "",
    )
    yield fact("", clean(", ".join(filter(None, circumstances))))
    for caveat in check.caveats:
        yield fact("", clean(f"but {caveat}"))
    if check.source_commit:
        yield fact("source", clean(check.source_commit))
