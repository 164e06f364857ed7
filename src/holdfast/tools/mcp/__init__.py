"""The tools of MCP servers: `NAME.tool` for every server that the settings name.

toolset.py      the settings, and the servers they name
tool.py        one tool of a server, as the registry knows it
catalog.py   what a server offers: read with care, kept on disk for whoever starts no server
schema.py      arguments and results against the server's own JSON Schemas
server.py      one server: started when it is needed, started again when it died, asked
transport.py        how it is reached: a process of ours with pipes, or HTTP; both bounded
results.py     answers as values, and failures by their category
"""

from holdfast.tools.mcp.toolset import Mcp

__all__ = ["Mcp"]
