"""An MCP server by the protocol's own SDK, whose schemas have patterns: of texts, and of the names in maps."""

from __future__ import annotations

from typing import Annotated

from mcp.server import MCPServer
from pydantic import BaseModel, Field

Code = Annotated[str, Field(pattern="^[A-Z]{3}-[0-9]+$")]
Evil = Annotated[str, Field(pattern="^(a+)+$")]
Ahead = Annotated[str, Field(json_schema_extra={"pattern": "^(?=a)"})]
Word = Annotated[str, Field(pattern=r"^\w+$")]


class Ticket(BaseModel):
    code: str = Field(json_schema_extra={"pattern": "^[A-Z]{3}-[0-9]+$"})


server = MCPServer("patterns")


@server.tool()
def book(code: Code, counts: dict[Code, int] | None = None) -> Ticket:
    """Its answer is what it was asked for, with the code in small letters if there is a count."""
    return Ticket(code=code.lower() if counts else code)


@server.tool()
def others(evil: Evil = "a", ahead: Ahead = "a", word: Word = "a", codes: list[Code] | None = None) -> str:
    """All that is hard to check."""
    return f"{len(evil)} {ahead} {word} {codes}"


server.run("stdio")
