"""The ids of questions: a call that the user has to approve is named by one, and the approval refers to it.

A client sends the question back with its answer, and could have written it itself. The id proves that this server asked
this caller about this call: it holds a code over all that the call is, which only the server's secret makes. So nothing
is kept, and an approval is good after a restart too.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import blake2b

import msgspec

from woolly.errors import RequestError, printable
from woolly.server.dialects.base.remote_tools import ApprovedCall

PREFIX = "mcpr_"
NONCE = 16  # characters


class Approvals:
    """secret: the same for as long as an approval is to be good."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def id_of(self, caller: str, url: str, label: str, name: str, arguments: str, *, nonce: str = "") -> str:
        """The id of a question to this caller: may this tool of the server at `url`, called `label`, be called?"""
        nonce = nonce or secrets.token_hex(NONCE // 2)
        words = msgspec.json.encode((nonce, caller, url, label, name, arguments))
        return PREFIX + nonce + blake2b(words, key=self._secret, digest_size=16, person=b"mcp approval").hexdigest()

    def check(self, caller: str, url: str, call: ApprovedCall) -> None:
        """Refuse the approval of a call that this caller was not asked about."""
        nonce = call.id.removeprefix(PREFIX)[:NONCE]
        asked = self.id_of(caller, url, call.label, call.name, call.arguments, nonce=nonce or " ")
        if not hmac.compare_digest(call.id.encode("utf-8", "surrogatepass"), asked.encode("utf-8", "surrogatepass")):
            raise RequestError(
                f"'{printable(call.id)}' is no question that was asked here about this call",
                suggestion="send the mcp_approval_request as it came, with the same tool in tools",
                param="input",
            )
