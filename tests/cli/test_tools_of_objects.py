"""Tools that are found in lists and dicts, made of an object's methods, and that know the task they work for."""

from __future__ import annotations

from cli.workshop import Workshop

OBJECTS = '''
import json

import holdfast


class Crm:
    """A client of the kind that packages ship."""

    limit = 3

    def __init__(self):
        self.asked = []

    @property
    def session(self):
        raise RuntimeError("nothing reads this")

    def find(self, name: str) -> str:
        """Find a customer."""
        self.asked.append(name)
        return f"{name} {len(self.asked)}"

    async def remove(self, name: str, call: holdfast.Call) -> str:
        return f"{call.path} {name}"

    def _own(self): ...


TOOLS = holdfast.toolset(Crm(), prefix="crm", effect={"find": "read"})


@holdfast.tool(name="in.dict", effect="read")
def in_dict() -> str:
    return "dict"


BY_NAME = {"one": in_dict, "other": 3}
del in_dict


def _told(call):
    return {"origin": call.origin_id, "id": call.execution_id, "inputs": call.inputs, "labels": call.labels}


@holdfast.tool(name="tell.here", effect="read")
def here(call: holdfast.Call) -> dict:
    return _told(call)


@holdfast.tool(name="tell.isolated", effect="read", isolated=True)
async def isolated(call: holdfast.Call) -> dict:
    return _told(call)


@holdfast.tool(name="gate", effect="read")
def gate(call: holdfast.Call) -> None:
    if not (call.folder / "go").exists():
        raise holdfast.ToolError("closed")


@holdfast.function
async def greets(ctx, name: str) -> str:
    return await ctx.call("crm.find", name="step", arguments={"name": name})
'''

TELL = """
name: tell
inputs: {topic: string}
labels: {team: harbour}
steps:
  - {id: gate, tool: gate}
  - {id: here, tool: tell.here}
  - {id: isolated, tool: tell.isolated}
output: {here: "${{ steps.here.output }}", isolated: "${{ steps.isolated.output }}"}
"""

PLAN = """
name: use
steps:
  - {id: find, tool: crm.find, with: {name: Ada}}
  - {id: remove, tool: crm.remove, with: {name: Ada}}
  - {id: dict, tool: in.dict}
output: ["${{ steps.find.output }}", "${{ steps.remove.output }}", "${{ steps.dict.output }}"]
"""


def _write(shop: Workshop) -> None:
    shop.write("holdfast.toml", 'modules = ["objects.py"]\n')
    shop.write("objects.py", OBJECTS)
    shop.write("use.yaml", PLAN)
    shop.write("tell.yaml", TELL)


def test_tools_in_a_list_and_a_dict_of_a_module_are_found(shop: Workshop) -> None:
    _write(shop)
    assert shop.run("run", "use.yaml", "--json").lines[-1]["output"] == ["Ada 1", "remove Ada", "dict"]
    effects = {tool["name"]: tool["effect"] for tool in shop.run("tools", "--json").json}
    assert (effects["crm.find"], effects["crm.remove"]) == ("read", "once")
    assert not [name for name in effects if name.startswith("crm.") and name not in ("crm.find", "crm.remove")]


def test_a_function_calls_a_tool_whose_argument_is_called_name(shop: Workshop) -> None:
    _write(shop)
    ended = shop.run("run", "greets", "-i", "name=Ada", "--json").lines[-1]
    assert ended["output"] == "Ada 1"
    assert [step["path"] for step in shop.run("show", ended["id"], "--json").json["steps"]] == ["step"]


def test_a_call_knows_its_task_and_its_origin_through_retries_of_retries(shop: Workshop) -> None:
    _write(shop)
    first = shop.run("run", "tell.yaml", "-i", "topic=tides", "--json", code=1).lines[-1]["id"]
    second = shop.run("retry", first, "--json", code=1).lines[-1]["id"]
    shop.open_gate()
    last = shop.run("retry", second, "--json").lines[-1]
    told = {"origin": first, "id": last["id"], "inputs": {"topic": "tides"}, "labels": {"team": "harbour"}}
    assert last["output"] == {"here": told, "isolated": told}
    fork = shop.run("fork", last["id"], "--at", "here", "--json").lines[-1]
    assert fork["output"]["here"] == {**told, "id": fork["id"]}
    alone = shop.run("run", "tell.yaml", "-i", "topic=tides", "--json").lines[-1]
    assert alone["output"]["isolated"]["origin"] == alone["id"]
