"""The routes that make and check tokens, which stand for a key."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.http.tokens import Claims, Tokens
from woolly.server.routes import Call, Query


class TokenBody(Struct):
    user_id: str
    api_key: str | None = None


class ValidateBody(Struct):
    token: str


class AccessToken(Shape, kw_only=True):
    token: str
    expires_in: Count
    token_type: Literal["Bearer"] = "Bearer"


class TokenValid(Shape):
    valid: bool
    claims: Claims | None
    expires_at: int | None


async def make_token(tokens: Tokens, call: Call) -> AccessToken:
    """A token for an hour in exchange for a key."""
    body: TokenBody = call.body
    token = tokens.exchange(body.api_key or "", body.user_id, call.caller.address)
    return AccessToken(token=token, expires_in=tokens.life_s)


async def validate_token(tokens: Tokens, call: Call) -> TokenValid:
    """Whether a token is valid."""
    body: ValidateBody = call.body
    claims = tokens.read(body.token)
    return TokenValid(valid=claims is not None, claims=claims, expires_at=claims.exp if claims else None)


ROUTES = (
    Query("POST", "/api/v1/auth/token", make_token, "Access", TokenBody, access="open", errors=(401, 429)),
    Query("POST", "/api/v1/auth/validate", validate_token, "Access", ValidateBody, access="open"),
)
