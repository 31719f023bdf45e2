"""mcp: the tools of other programs, by the Model Context Protocol.

In: servers that the settings name, each a command to start or a URL. Out: their tools as a chat offers them, and the
result of a call, as text. `rpc` has the messages, which our own server (server/mcp/mcp.py) uses too.
What holds:
- A server is a stranger. One that dies, hangs, floods, answers nonsense or another request costs one sentence: its
  connection is closed, and the next request makes a new one.
- Every wait has an end, every answer a limit. A command sees of our environment only what programs need to run.
- Nothing here decides whether a tool may be called: the caller has asked the user, or the settings.
"""

from woolly.mcp.client import CallToolResult, Client
from woolly.mcp.toolbox import OfferedTool, Toolbox

__all__ = ["CallToolResult", "Client", "OfferedTool", "Toolbox"]
