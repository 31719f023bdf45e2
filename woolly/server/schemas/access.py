"""Tokens that stand for a key."""

from __future__ import annotations

from typing import Literal

from woolly.server.dialects.shapes import Count, Shape


class AccessToken(Shape):
    token: str
    expires_in: Count
    token_type: Literal["Bearer"]


class TokenClaims(Shape):
    sub: str
    iat: int
    exp: int
    iss: str
    aud: str
    api_key_id: str | None


class TokenValid(Shape):
    valid: bool
    claims: TokenClaims | None
    expires_at: int | None
