"""Whether a request may be answered: by whom it says it is reached, from which page it comes, which token it has."""

from marpack.serving.access import Guard, TokenKind, Tokens
from marpack.serving.api import Call
from marpack.torchserve.frontend.headers import FormError

_KEY_REFUSED = "Token {} failed. Token either incorrect, expired, or not provided correctly"


class Admission:
    """What some routes ask of those who call them."""

    def __init__(self, *, tokens: Tokens | None = None, kind: TokenKind, compat: bool = False) -> None:
        """Ask for a token of a kind, where there are tokens; `compat`: refuse in the original's status."""
        self.tokens = tokens
        self.guard: Guard | None = None  # None: they may be called under any name, and by any page
        self._kind = kind
        self._compat = compat

    def check(self, call: Call) -> None:
        """Raise FormError for a request that may not be answered: 401 without a token, 403 for all else."""
        self.check_origin(call)
        if self.tokens is None:
            return
        given = call.request.header("authorization")
        if not self.tokens.allows(self._kind, given):
            of_another_kind = any(self.tokens.allows(kind, given) for kind in TokenKind)
            raise self.refused("Authorization", status=403 if of_another_kind else 401)

    def check_origin(self, call: Call) -> None:
        """Raise FormError (403) for a request by a name that isn't the server's, or from another's page."""
        if self.guard is None:
            return
        why = self.guard.refuses(_value(call, "host"), _value(call, "origin"))
        if why is not None:
            raise FormError(f"{why}.", status=403, kind="ForbiddenException")

    def refused(self, what: str, *, status: int = 401) -> FormError:
        """Return the refusal of a token; `what` it was for, in the original's words."""
        return FormError(_KEY_REFUSED.format(what), status=400 if self._compat else status, kind="InvalidKeyException")


def _value(call: Call, name: str) -> str | None:
    """Return a header's value; of several headers all, which is none that is allowed."""
    return ", ".join(value for header, value in call.request.headers if header.lower() == name) or None
