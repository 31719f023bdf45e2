"""The router: one table of the paths of all dialects, each route with the services that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from starlette import routing

from woolly.errors import NotFoundError, RequestError
from woolly.server.http.request import Http
from woolly.server.routes import Dialect, Query, Route
from woolly.server.services import bind

LONGEST, NEAR = 64, 0.8  # of a wrong path: the letters that are looked at, and how like a route it must be


class Path:
    """All routes of one path, by method. Of several for one method, the first that accepts the body answers."""

    def __init__(self, path: str) -> None:
        self.pattern = routing.Route(path, _never)
        self.routes: dict[str, list[tuple[Dialect, Route]]] = {}

    @property
    def allow(self) -> str:
        methods = {*self.routes, "OPTIONS"} | ({"HEAD"} if "GET" in self.routes else set())
        return ", ".join(sorted(methods))

    def of(self, method: str) -> list[tuple[Dialect, Route]]:
        """The routes for a method, each with its dialect."""
        routes = self.routes.get("GET" if method == "HEAD" else method)
        if routes is None:
            raise RequestError(f"this route takes {self.allow}", code="method_not_allowed", allow=self.allow)
        return routes


class Router:
    def __init__(self, dialects: tuple[Dialect, ...], services: Mapping[type, object]) -> None:
        self._paths = _paths(dialects, services)
        self._described = sorted(
            {route.path for one in dialects for route in one.routes if route.tag and "{" not in route.path}
        )

    def find(self, http: Http) -> tuple[Path, dict[str, str]]:
        """The routes of a request's path, and the parameters in it."""
        if "//" not in http.path and "/../" not in http.path and "\0" not in http.path:
            scope = dict(http.scope) | {"method": "GET"}
            for path in self._paths:
                match, child_scope = path.pattern.matches(scope)
                if match is not routing.Match.NONE:
                    return path, child_scope["path_params"]
        raise NotFoundError("there is no such route", suggestion=self._near(http.path))

    def _near(self, path: str) -> str:
        """What to ask for in place of a path that no route has."""
        near = get_close_matches(path[:LONGEST].lower(), self._described, n=1, cutoff=NEAR)
        return f"did you mean {near[0]}?" if near else "GET /docs describes every route"


def _paths(dialects: tuple[Dialect, ...], services: Mapping[type, object]) -> list[Path]:
    """The table of paths. Those with parameters come last: a fixed one is never taken for a name."""
    paths: dict[str, Path] = {}
    for dialect in dialects:
        for route in dialect.routes:
            path = paths.setdefault(route.path, Path(route.path))
            path.routes.setdefault(route.method, []).append((dialect, bound(route, services)))
    for path in paths.values():
        for method, routes in path.routes.items():
            where = f"{method} {path.pattern.path}"
            assert len({(type(route), route.access) for _, route in routes}) == 1, f"routes of two kinds at {where}"
            choosing = [route.accepts is not None for _, route in routes]
            assert choosing == [True] * (len(routes) - 1) + [False], f"the last route alone takes any body at {where}"
    return sorted(paths.values(), key=lambda path: ("{" in path.pattern.path, -len(path.pattern.path)))


def bound(route: Route, services: Mapping[type, object]) -> Route:
    """The route with the services that it asks for."""
    return replace(route, call=bind(route.call, services)) if isinstance(route, Query) else route


async def _never(_: object) -> None:  # a pattern only matches paths; the routes answer
    raise AssertionError
