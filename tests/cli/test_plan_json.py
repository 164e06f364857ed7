"""JSON in plans: what an API answers, what a command prints, and `json(text)` in expressions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cli.workshop import Workshop

PAGES = {
    "/weather": ("application/json; charset=utf-8", b'{"wind": {"kn": 24}, "places": ["pier", "beach"]}'),
    "/problem": ("application/problem+json", b'{"title": "no tide"}'),
    "/broken": ("application/json", b'{"wind": '),
    "/plain": ("text/plain", b'{"wind": 1}'),
    "/huge": ("application/json", b'{"id": 123456789012345678901234567890}'),
    "/deep": ("application/json", b"[" * 5000 + b"]" * 5000),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, body = PAGES.get(self.path, ("text/plain", b"nothing here"))
        self.send_response(200 if self.path in PAGES else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def api(shop: Workshop) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shop.write("holdfast.toml", 'modules = ["tools.py"]\n[tools.http]\nallow = ["127.0.0.1"]\n')
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(shop: Workshop, text: str) -> object:
    shop.write("plan.yaml", text)
    ended = shop.run("run", "plan.yaml", "--json").lines[-1]
    return ended["output"]


def test_field_of_an_api_answer_is_read_in_three_lines(shop: Workshop, api: str) -> None:
    plan = f"""\
steps:
  - {{id: weather, tool: http.get, with: {{url: "{api}/weather"}}}}
  - {{id: note, tool: work.do, with: {{value: "${{{{ steps.weather.output.json.wind.kn }}}}"}}}}
"""
    assert run(shop, plan) == 24


def test_http_request_gives_json_too_and_any_kind_of_json_counts(shop: Workshop, api: str) -> None:
    plan = f"""\
steps:
  - {{id: ask, tool: http.request, with: {{url: "{api}/problem", method: GET}}}}
output: ${{{{ steps.ask.output.json.title }}}}
"""
    assert run(shop, plan) == "no tide"


def test_status_of_a_refused_request_is_known_to_later_steps(shop: Workshop, api: str) -> None:
    plan = f"""\
steps:
  - {{id: ask, tool: http.get, with: {{url: "{api}/gone"}}, critical: false}}
output: ["${{{{ steps.ask.failure.status }}}}", "${{{{ steps.ask.failure.category }}}}"]
"""
    assert run(shop, plan) == [404, "tool"]


@pytest.mark.parametrize("page", ["broken", "plain", "huge", "deep"])
def test_answer_that_is_no_json_or_cannot_be_kept_as_such_has_its_text_only(
    shop: Workshop, api: str, page: str
) -> None:
    plan = f"""\
steps:
  - {{id: ask, tool: http.request, with: {{url: "{api}/{page}", method: GET}}}}
output: {{json: "${{{{ steps.ask.output.json }}}}", size: "${{{{ size(steps.ask.output.text) }}}}"}}
"""
    assert run(shop, plan) == {"json": None, "size": len(PAGES[f"/{page}"][1])}


def test_expression_reads_json_from_any_text(shop: Workshop) -> None:
    plan = """\
steps:
  - id: list
    tool: shell.run
    with: {command: "echo '[{\\"name\\": \\"pier\\"}, {\\"name\\": \\"beach\\"}]'"}
    effect: read
  - id: each
    for_each: ${{ json(steps.list.output.stdout).map(p, p.name) }}
    tool: shell.run
    with: {command: ["echo", "${{ item }}"]}
    effect: read
output: ${{ steps.each.output.map(e, e.stdout.trim()) }}
"""
    assert run(shop, plan) == ["pier", "beach"]


def test_text_that_is_no_json_is_named_with_the_place_where_it_ends(shop: Workshop) -> None:
    shop.write(
        "plan.yaml",
        """\
steps:
  - {id: list, tool: shell.run, with: {command: "echo nonsense"}, effect: read}
  - {id: use, tool: work.do, with: {value: "${{ json(steps.list.output.stdout).x }}"}, critical: false}
""",
    )
    told = shop.run("run", "plan.yaml").out
    assert "json(…) needs JSON, got the string" in told
    assert "nonsense" in told
    assert "line 1, column 1" in told


def test_command_output_is_parsed_as_json_or_as_lines(shop: Workshop) -> None:
    plan = """\
steps:
  - {id: one, tool: shell.run, with: {command: "echo '{\\"level\\": 1.7}'", parse: json}, effect: read}
  - {id: many, tool: shell.run, with: {command: "printf 'pier\\\\n\\\\nbeach'", parse: lines}, effect: read}
output: {level: "${{ steps.one.output.json.level }}", lines: "${{ steps.many.output.lines }}"}
"""
    assert run(shop, plan) == {"level": 1.7, "lines": ["pier", "", "beach"]}


def test_command_that_prints_something_else_than_json_has_failed_and_happened(shop: Workshop) -> None:
    shop.write(
        "plan.yaml",
        "steps:\n  - {id: one, tool: shell.run, with: {command: 'echo tide: high', parse: json}}\n",
    )
    failed = shop.run("run", "plan.yaml", "--json", code=1).lines
    failure = next(line for line in failed if line.get("type") == "step:failed")["failure"]
    assert "its output is not JSON" in failure["message"]
    assert "tide: high" in failure["message"]
    assert failure.get("happened", "known") == "known"


def test_parse_needs_text(shop: Workshop) -> None:
    shop.write(
        "plan.yaml",
        "steps:\n  - {id: one, tool: shell.run, with: {command: ls, parse: json, encoding: base64}}\n",
    )
    checked = shop.run("check", "plan.yaml", code=1).out
    assert "steps[0].with.parse: reads text, and encoding says base64; leave one of them out" in checked
