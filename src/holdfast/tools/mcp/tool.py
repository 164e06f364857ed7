"""One tool of a server, as the registry knows it, and as its server says it is by now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from holdfast.core.errors import Misconfigured
from holdfast.core.policy import Effect
from holdfast.tools.call import Call
from holdfast.tools.hooks import OutputInvalid
from holdfast.tools.json_values import encode
from holdfast.tools.mcp.catalog import Described
from holdfast.tools.mcp.results import Answer, Misfit
from holdfast.tools.mcp.schema import SchemaSignature
from holdfast.tools.options import Options
from holdfast.tools.signature import Signature
from holdfast.tools.tool import Tool

CALL = "_holdfast_call"  # an argument that no server will ask for
STRICTER: tuple[Effect, ...] = ("read", "idempotent", "once")  # each than the one before it


class ToolSource(Protocol):
    name: str

    async def call(self, tool: Described, arguments: Mapping[str, Any], call: Call, owner: str) -> Answer | Misfit: ...


class McpTool(Tool[..., Any]):
    """Its arguments are what the server says they are."""

    def __init__(self, source: ToolSource, described: Described, options: Options) -> None:
        self._described = described
        owner = options.name

        async def ask(**given: Any) -> Answer | Misfit:
            call = cast("Call", given.pop(CALL))
            return await source.call(self._described, given, call, owner)

        super().__init__(ask, options)
        self.__name__ = owner
        self.place = f"the MCP server {source.name}"

    @property
    def signature(self) -> Signature:  # pyright: ignore[reportIncompatibleVariableOverride]
        known = self.__dict__.get("_signature")
        if known is None:
            known = self._signature = SchemaSignature(self._described.input_schema, self.name, CALL)
        return known

    def output(self, value: Any) -> bytes:
        if isinstance(value, Misfit):
            raise OutputInvalid(value.why, encode(value.answer, f"the output of {self.name}"))
        return super().output(value)

    def renew(self, described: Described, effect: Effect) -> None:
        """The server says something else of it now."""
        if described != self._described:
            self._described = described
            self.description = described.description
            self.effect = effect
            self.__dict__.pop("_signature", None)
            self.__dict__.pop("signature_digest", None)


def refuse_if_stricter(live: Effect, started_as: Effect | None, owner: str) -> None:
    """A call that was begun by what its server said an hour ago is not sent if it says less of the tool by now: whoever
    finds it after a crash would repeat it."""
    if started_as is not None and STRICTER.index(live) > STRICTER.index(started_as):
        raise Misconfigured(
            f"{owner}: its server no longer says that it may be repeated: it was begun as `{started_as}`, and is "
            f"`{live}` by now. It was not called; let it run again as `{live}`, or name its effect under `effects` in "
            "the settings of the server"
        )
