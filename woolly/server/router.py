"""The router: one table of the paths of all dialects, each route with the services that it asks for.

A path without parameters is looked up; one with parameters, `/v1/files/{id}` or `/v1/models/{name:path}`, is matched,
the longest pattern first. So a fixed path is never taken for a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from woolly.errors import NotFoundError, RequestError
from woolly.server.routes import Dialect, Query, Route
from woolly.server.services import bind

PARAMETER = re.compile(r"\{(\w+)(:path)?\}")
LONGEST, NEAR = 64, 0.8  # of a wrong path: the letters that are looked at, and how like a route it must be


class Path:
    """All routes of one path, by method. Of several for one method, the first that accepts the body answers."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pattern = _pattern(path)
        self.by_method: dict[str, list[tuple[Dialect, Route]]] = {}

    @property
    def allow(self) -> str:
        methods = {*self.by_method, "OPTIONS"} | ({"HEAD"} if "GET" in self.by_method else set())
        return ", ".join(sorted(methods))

    def routes(self, method: str) -> list[tuple[Dialect, Route]]:
        """The routes for a method, each with its dialect."""
        routes = self.by_method.get("GET" if method == "HEAD" else method)
        if routes is None:
            raise RequestError(f"this route takes {self.allow}", code="method_not_allowed", allow=self.allow)
        return routes


class Router:
    def __init__(self, dialects: tuple[Dialect, ...], services: Mapping[type, object]) -> None:
        paths: dict[str, Path] = {}
        for dialect in dialects:
            for route in dialect.routes:
                path = paths.setdefault(route.path, Path(route.path))
                path.by_method.setdefault(route.method, []).append((dialect, bound(route, services)))
        for path in paths.values():
            _check(path)
        self._fixed = {name: path for name, path in paths.items() if "{" not in name}
        self._patterns = sorted((path for name, path in paths.items() if "{" in name), key=lambda path: -len(path.path))
        self._described = sorted(
            {route.path for one in dialects for route in one.routes if route.tag and "{" not in route.path}
        )

    def find(self, path: str) -> tuple[Path, dict[str, str]]:
        """The routes of a path, and the parameters in it."""
        if "//" not in path and "/../" not in path and "\0" not in path:
            if fixed := self._fixed.get(path):
                return fixed, {}
            for one in self._patterns:
                if match := one.pattern.fullmatch(path):
                    return one, match.groupdict()
        raise NotFoundError("there is no such route", suggestion=self._near(path))

    def _near(self, path: str) -> str:
        """What to ask for in place of a path that no route has."""
        near = get_close_matches(path[:LONGEST].lower(), self._described, n=1, cutoff=NEAR)
        return f"did you mean {near[0]}?" if near else "GET /docs describes every route"


def bound(route: Route, services: Mapping[type, object]) -> Route:
    """The route with the services that it asks for."""
    return replace(route, call=bind(route.call, services)) if isinstance(route, Query) else route


def _pattern(path: str) -> re.Pattern[str]:
    """What a path with parameters matches: each is a part between slashes; one of the kind `path` may have slashes."""
    pattern, end = "", 0
    for parameter in PARAMETER.finditer(path):
        pattern += re.escape(path[end : parameter.start()])
        pattern += f"(?P<{parameter[1]}>{'.*' if parameter[2] else '[^/]+'})"
        end = parameter.end()
    return re.compile(pattern + re.escape(path[end:]))


def _check(path: Path) -> None:
    for method, routes in path.by_method.items():
        where = f"{method} {path.path}"
        assert len({(type(route), route.access) for _, route in routes}) == 1, f"routes of two kinds at {where}"
        choosing = [route.accepts is not None for _, route in routes]
        assert choosing == [True] * (len(routes) - 1) + [False], f"the last route alone takes any body at {where}"
