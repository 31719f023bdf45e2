"""Health, figures, metrics, the benchmark, the description and the page."""

from __future__ import annotations

from tools.http_transcripts.case import get, named, post

SCRIPTS = ("theme", "chat", "chats", "dom", "files", "markdown", "settings", "speak", "speed", "tools", "turn")
PAGE = ("style.css", "icon.svg", *(f"{name}.js" for name in SCRIPTS))
BENCHMARK = "/api/v1/performance/benchmark"

CASES = named(
    "figures",
    (get(path, path) for path in ("/health", "/api/v1/health", "/health/live", "/api/v1/health/live")),
    (get(path, path) for path in ("/health/ready", "/api/v1/health/ready")),
    get("health of nothing", "/health", server="empty"),
    get("ready for nothing", "/health/ready", server="empty"),
    get("stats", "/api/v1/performance/stats"),
    get("stats of nothing", "/api/v1/performance/stats", server="empty"),
    get("metrics", "/metrics"),
    get("metrics as JSON", "/metrics", headers={"Accept": "application/json"}),
    get("metrics of woolly", "/api/v1/metrics"),
    get("metrics of woolly as text", "/api/v1/metrics", headers={"Accept": "text/plain"}),
    get("metrics of nothing", "/metrics", server="empty"),
    get("the engine", "/api/v1/debug/engine"),
    get("the engine of nothing", "/api/v1/debug/engine", server="empty"),
    post("tokens are timed", BENCHMARK, {"test_type": "token_generation", "iterations": 2}),
    post("products are timed", BENCHMARK, {"test_type": "matrix_multiplication", "iterations": 2}),
    post("memory is timed", BENCHMARK, {"test_type": "memory_allocation", "iterations": 1}),
    get("what was timed", BENCHMARK),
    post("refused, an unknown test", BENCHMARK, {"test_type": "nonsense"}),
    post("refused, no rounds", BENCHMARK, {"test_type": "token_generation", "iterations": 0}),
    post("refused, nothing is loaded", BENCHMARK, {"test_type": "token_generation"}, server="empty"),
    get("the description", "/openapi.json"),
    get("the documents", "/docs"),
    get("the page", "/"),
    (get(f"a file of the page, {name}", f"/page/{name}") for name in PAGE),
    get("refused, a file that the page has not", "/page/nothing.js"),
)
