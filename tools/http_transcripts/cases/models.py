"""Models: lists, records, loading and unloading, adapters; what is deleted is asked last."""

from __future__ import annotations

from tools.http_transcripts.case import delete, get, made_current, named, post
from tools.http_transcripts.cases.woolly import ASK, OLE

ADAPTERS = "/lora-adapters"

CASES = named(
    "models",
    (get(f"listed at {path}", path) for path in ("/api/v1/models", "/api/models", "/models")),
    *(get(f"listed for Ole at {path}", path, headers=OLE) for path in ("/api/v1/models", "/models")),
    get("none", "/api/v1/models", server="empty"),
    get("one", "/api/v1/models/talker"),
    get("one for Ole", "/api/v1/models/talker", headers=OLE),
    get("an encoder", "/api/v1/models/encoder"),
    get("refused, a broken one", "/api/v1/models/broken"),
    get("refused, one that is not there", "/api/v1/models/nobody"),
    made_current("talker"),
    get("adapters", ADAPTERS),
    post("adapters changed", ADAPTERS, [{"id": 0, "scale": 0.5}]),
    post("adapters changed as an object", ADAPTERS, {"adapters": [{"id": 0, "scale": 1.0}]}),
    post("refused, an unknown adapter", ADAPTERS, [{"id": 7, "scale": 1}]),
    post("refused, an adapter without a scale", ADAPTERS, [{"id": 0}]),
    post("refused, too large a scale", ADAPTERS, [{"id": 0, "scale": 101}]),
    get("refused, adapters of nothing", ADAPTERS, server="empty"),
    post("loaded", "/api/v1/models/spare/load", {}),
    get("the one that is loaded", "/api/v1/models/loaded"),
    post("loaded twice", "/api/v1/models/spare/load", {}),
    post("loaded by name", "/api/v1/models/load", {"name": "spare"}),
    post("loaded by name, openai", "/v1/models/load", {"model": "spare"}),
    post("loaded by name, older", "/api/models/load", {"name": "spare"}),
    post("loaded by name, llama-server", "/models/load", {"model": "spare"}),
    post("refused, loaded though not there", "/api/v1/models/nobody/load", {}),
    post("refused, loaded from elsewhere", "/api/v1/models/x/load", {"path": "/etc/passwd"}),
    post("refused, loaded though broken", "/api/v1/models/broken/load", {}),
    post("refused, loaded without a name", "/api/v1/models/load", {}),
    post("refused, loaded though not there, openai", "/v1/models/load", {"model": "nobody"}),
    post("unloaded by name, llama-server", "/models/unload", {"model": "spare"}),
    post("loaded to be unloaded", "/models/load", {"model": "spare"}),
    post("unloaded", "/api/v1/models/spare/unload", {}),
    post("refused, unloaded twice", "/api/v1/models/spare/unload", {}),
    post("refused, unloaded though not there", "/api/v1/models/nobody/unload", {}),
    post("the current one unloaded", "/api/models/unload", {"force": True}),
    post("nothing unloaded", "/api/models/unload", {}, server="empty"),
    post(
        "a chat loads it again",
        "/api/v1/inference/chat",
        ASK | {"model": "spare"},
    ),
    delete("deleted", "/api/delete", {"model": "adder"}),
    get("refused, one that is deleted", "/api/v1/models/adder"),
)
