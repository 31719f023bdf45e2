"""Keys and tokens: which key was sent, and tokens (JWT, HS256) that stand for a key for an hour.

The secret is random for each start unless the settings have one, so tokens end with the process. A token of a key that
the server does not have any more is not valid. Where there are no keys a token stands for nothing: whoever has one is
who it would be without it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time

import msgspec

from woolly.errors import RequestError
from woolly.server.http.addresses import neighbours_of
from woolly.server.http.caller import KEY
from woolly.server.http.errors import too_many
from woolly.server.http.rate import Rate

LIFE_S = 3600
GRACE_S = 60  # clocks differ
GUESSES = 10  # wrong keys of an address that are looked at, and as many again in each minute
ISSUER, AUDIENCE = "woolly-server", "woolly-api"

_HEAD = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")


class Claims(msgspec.Struct, frozen=True):
    sub: str
    iat: int
    exp: int
    iss: str
    aud: str
    api_key_id: str | None = None


class Tokens:
    def __init__(self, keys: tuple[bytes, ...], *, secret: bytes = b"", life_s: int = LIFE_S) -> None:
        self.keys = keys  # SHA-256 of each
        self.life_s = life_s
        self._secret = secret or secrets.token_bytes(32)
        self._guesses = Rate(GUESSES, GUESSES)

    @property
    def names(self) -> frozenset[str]:
        """The short names of the keys that the server has now."""
        return frozenset(map(_name, self.keys))

    def key_id(self, sent: str) -> str | None:
        """The short name of the key that was sent, if the server has it; never the key itself."""
        digest = hashlib.sha256(sent.encode("utf-8", "replace")).digest()
        name = None
        for key in self.keys:  # always all of them, so that the time reveals nothing
            if hmac.compare_digest(digest, key):
                name = _name(key)
        return name

    def exchange(self, sent: str, user: str, address: str) -> str:
        """A token for the key that was sent. After too many wrong ones of an address, its next is not looked at."""
        guesser = neighbours_of(address)
        if wait := self._guesses.wait_s(guesser):
            raise too_many("too many wrong keys came from this address", wait)
        key_id = self.key_id(sent)
        if key_id is None and (self.keys or sent):
            self._guesses.take(guesser)
            raise RequestError("a valid API key is needed", suggestion="send api_key", code="authentication_failed")
        return self.make(user, key_id)

    def make(self, user: str, key_id: str | None) -> str:
        now = int(time.time())
        claims = Claims(user, now, now + self.life_s, ISSUER, AUDIENCE, key_id)
        body = _HEAD + b"." + base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
        return (body + b"." + self._sign(body)).decode("ascii")

    def read(self, token: str) -> Claims | None:
        """The claims of a token, if this server signed it and it is not too old."""
        try:
            body, _, sign = token.encode("ascii").rpartition(b".")
            head, _, middle = body.partition(b".")
            if head != _HEAD or not hmac.compare_digest(sign, self._sign(body)):
                return None
            padded = middle + b"=" * (-len(middle) % 4)
            claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=Claims)
        except (ValueError, msgspec.DecodeError):  # binascii's is a ValueError
            return None
        known = self.names or {None}
        return claims if claims.exp + GRACE_S >= time.time() and claims.api_key_id in known else None

    def _sign(self, body: bytes) -> bytes:
        return base64.urlsafe_b64encode(hmac.new(self._secret, body, hashlib.sha256).digest()).rstrip(b"=")


def _name(key: bytes) -> str:
    return KEY + key.hex()[:12]
