"""A model for real agents: a server on this machine that speaks as four providers do, and answers from a script.

A script maps a prompt to its steps. The last prompt of the user in a request selects the steps, and the number of
tool results since then the step: requests may be repeated, and a subagent or another session has a prompt of its own.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Json = dict[str, Any]
LAST_WORDS = "Done."
CODE = "code"
CODE_MODE_TOOL = re.compile(r"declare const tools: \{ (\w+)\(")


class ToolResult(str):
    """A tool result in a conversation, as JSON; every other item is a text of the user."""


class Found(NamedTuple):
    """A value that the model takes from the newest tool result in which a pattern matches: its first group."""

    pattern: str

    def value(self, results: Sequence[ToolResult]) -> str:
        """Return the value; empty without a match, so that the tool refuses it."""
        found = (re.search(self.pattern, each) for each in reversed(results))
        return next((match[1] for match in found if match), "")


class Call(NamedTuple):
    """A tool that the model has an agent use: the first of the agent's tools that matches."""

    tool: str
    words: Json
    """The arguments; a `Found` stands for a value of an earlier result."""


class Failure(NamedTuple):
    """The provider refuses the request with this status."""

    status: int


Step = Call | Failure | tuple[Call, ...]
"""One answer: a call, several at once, or a failure."""
Script = Mapping[str, Sequence[Step]]
Conversation = Sequence[str]


class Chosen(NamedTuple):
    """A call with the name of a tool that the agent has, and an id."""

    id: str
    tool: str
    words: Json


class Server(ThreadingHTTPServer):
    """Listens, and keeps the names of the tools that it was offered and the results of the newest conversation."""

    script: Script
    offered: set[str]
    results: list[ToolResult]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: an agent that was killed closes its connection."""

    def answer(
        self, conversation: Conversation, tools: Sequence[str], *, deferred: bool = False
    ) -> list[Chosen] | Failure:
        """Return the calls of the next step; none at the end, or if a request has no tools (it asks for a title).

        `deferred`: the agent has more tools than the request names; their pattern is returned as the name.
        """
        self.offered |= set(tools)
        results = [each for each in conversation if isinstance(each, ToolResult)]
        self.results = results or self.results
        step, number = self._step(conversation)
        if isinstance(step, Failure):
            return step if tools else []
        calls = (step,) if isinstance(step, Call) else step
        chosen = []
        for index, call in enumerate(calls):
            found = next((name for name in tools if re.fullmatch(call.tool, name)), None)
            name = call.tool if found is None and deferred else found
            if name is not None:
                words = {
                    key: value.value(results) if isinstance(value, Found) else value
                    for key, value in call.words.items()
                }
                # Hooks recognise a repeated event by the id of the call, also of a subagent's call.
                chosen.append(Chosen(f"{number}_{index}_{uuid.uuid4().hex[:12]}", name, words))
        return chosen

    def _step(self, conversation: Conversation) -> tuple[Step, int]:
        keys = [
            None if isinstance(text, ToolResult) else next((key for key in self.script if key in text), None)
            for text in conversation
        ]
        prompts = [(at, key) for at, key in enumerate(keys) if key is not None]
        if not prompts:
            return (), 0
        prompt = prompts[-1][1]
        # An agent may repeat the prompt after a tool: the turn begins where the prompt follows another one.
        other = max((at for at, key in prompts if key != prompt), default=-1)
        begin = next(at for at, _ in prompts if at > other)
        results = sum(isinstance(each, ToolResult) for each in conversation[begin:])
        done = 0
        for step in self.script[prompt]:
            if results <= done:
                return step, done
            done += len(step) if isinstance(step, tuple) and not isinstance(step, (Call, Failure)) else 1
        return (), done


@contextmanager
def model(script: Script) -> Iterator[Server]:
    """Serve the model while the context is open."""
    server = Server(("127.0.0.1", 0), _Handler)
    server.script, server.offered, server.results = script, set(), []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._send({"data": [], "models": []})

    def do_POST(self) -> None:
        path, value = self.path.partition("?")[0], self._value()
        with suppress(BrokenPipeError, ConnectionResetError):
            if path.endswith("/count_tokens"):
                self._send({"input_tokens": 1})
            elif path.endswith("/messages"):
                self._anthropic(value)
            elif path.endswith("/responses"):
                self._openai(value)
            elif path.endswith("/chat/completions"):
                self._completions(value)
            elif "enerateContent" in path:
                self._google(value, streamed="stream" in path)
            else:
                self._send({})

    def _answer(
        self, conversation: Conversation, tools: Sequence[str], *, deferred: bool = False
    ) -> list[Chosen] | None:
        """Return the calls; None if the provider fails, which is answered already."""
        found = self.server.answer(conversation, tools, deferred=deferred)
        if isinstance(found, Failure):
            error = {"type": "invalid_request_error", "message": "the provider refuses", "code": found.status}
            self._reply(
                "application/json", json.dumps({"type": "error", "error": error}).encode(), found.status
            )
            return None
        return found

    def _anthropic(self, value: Json) -> None:
        said: list[str] = []
        for row in value["messages"]:
            if row["role"] == "user":
                blocks = _list(row["content"])
                said += [
                    _result(each.get("content"))
                    if each.get("type") == "tool_result"
                    else str(each.get("text", ""))
                    for each in blocks
                ]
        calls = self._answer(said, [each["name"] for each in value.get("tools", [])])
        if calls is None:
            return
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            # Claude Code merges answers with one id when it continues a session.
            "id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": value["model"],
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if not value.get("stream"):
            whole = [{"type": "text", "text": LAST_WORDS}]
            self._send({**message, "content": whole, "stop_reason": "end_turn"})
            return
        answers: list[tuple[Json, Json]] = [
            (
                {"type": "tool_use", "id": f"toolu_{len(said)}_{call.id}", "name": call.tool, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(call.words)},
            )
            for call in calls
        ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": LAST_WORDS})]
        rows: list[Json | None] = [{"type": "message_start", "message": message}]
        for index, (block, delta) in enumerate(answers):
            rows.append({"type": "content_block_start", "index": index, "content_block": block})
            rows.append({"type": "content_block_delta", "index": index, "delta": delta})
            rows.append({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        rows += [{"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
        self._stream(rows)

    def _openai(self, value: Json) -> None:
        said: list[str] = []
        offered = list(value.get("tools", []))
        for each in value["input"]:
            if str(each.get("type")).endswith("call_output"):
                said.append(_result(each.get("output")))
            elif each.get("type") == "additional_tools":
                offered += each["tools"]
            elif each.get("role") == "user":
                said += [str(part.get("text", "")) for part in _list(each.get("content"))]
        tools = _openai_tools(offered)
        in_code = any(form == CODE for form, _ in tools.values())
        calls = self._answer(said, list(tools), deferred=in_code)
        if calls is None:
            return
        items = [
            _openai_call(call, *tools.get(call.tool, (CODE, "")), f"{len(said)}_{call.id}") for call in calls
        ]
        text = [{"type": "output_text", "text": LAST_WORDS}]
        items = items or [{"type": "message", "id": f"m_{len(said)}", "role": "assistant", "content": text}]
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        answer = {"id": f"resp_{len(said)}", "object": "response", "status": "completed", "output": items}
        self._stream([
            {"type": "response.created", "response": {"id": answer["id"]}},
            *(
                {"type": "response.output_item.done", "output_index": index, "item": item}
                for index, item in enumerate(items)
            ),
            {"type": "response.completed", "response": {**answer, "usage": usage}},
        ])  # fmt: skip

    def _completions(self, value: Json) -> None:
        said: list[str] = []
        for row in value["messages"]:
            if row["role"] == "tool":
                said.append(_result(row.get("content")))
            elif row["role"] == "user":
                content = row["content"]
                texts = [content] if isinstance(content, str) else [each.get("text") for each in content]
                said += [str(each) for each in texts]
        calls = self._answer(said, [each["function"]["name"] for each in value.get("tools", [])])
        if calls is None:
            return
        says: Json = {"role": "assistant", "content": None if calls else LAST_WORDS}
        if calls:
            says["tool_calls"] = [
                {
                    "index": index,
                    "id": f"call_{len(said)}_{call.id}",
                    "type": "function",
                    "function": {"name": call.tool, "arguments": json.dumps(call.words)},
                }
                for index, call in enumerate(calls)
            ]
        why = "tool_calls" if calls else "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        common = {"id": "c", "created": 1, "model": value["model"]}
        if not value.get("stream"):
            choice = {"index": 0, "message": says, "finish_reason": why}
            self._send({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        common["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": says, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": why}
        self._stream([{**common, "choices": [first]}, {**common, "choices": [last], "usage": usage}, None])

    def _google(self, value: Json, *, streamed: bool) -> None:
        said: list[str] = []
        for row in value.get("contents", []):
            if row.get("role") != "model":
                parts = row.get("parts", [])
                said += [
                    _result(part["functionResponse"])
                    if "functionResponse" in part
                    else str(part.get("text", ""))
                    for part in parts
                ]
        declared = [each for tool in value.get("tools", []) for each in tool.get("functionDeclarations", [])]
        calls = self._answer(said, [each["name"] for each in declared])
        if calls is None:
            return
        answers: list[Json] = [{"functionCall": {"name": call.tool, "args": call.words}} for call in calls]
        answers = answers or [{"text": LAST_WORDS}]
        candidate = {"content": {"role": "model", "parts": answers}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage}
        if streamed:
            self._stream([answer])
        else:
            self._send(answer)

    def _value(self) -> Json:
        data = b"".join(self._chunks())
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        value = json.loads(data or b"{}")
        return value if isinstance(value, dict) else {}

    def _chunks(self) -> Iterator[bytes]:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _send(self, value: Json) -> None:
        self._reply("application/json", json.dumps(value).encode())

    def _stream(self, rows: Sequence[Json | None]) -> None:
        lines = b""
        for row in rows:
            event = f"event: {row['type']}\n" if row and "type" in row else ""
            lines += f"{event}data: {'[DONE]' if row is None else json.dumps(row)}\n\n".encode()
        self._reply("text/event-stream", lines)

    def _reply(self, kind: str, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _openai_tools(offered: Sequence[Json]) -> dict[str, tuple[str, str]]:
    """Return (form, name) of each tool by the name that a script uses; tools of a server are in a namespace.

    In Codex' code mode the model writes JavaScript for one tool, whose description declares the others.
    """
    tools: dict[str, tuple[str, str]] = {}
    for each in offered:
        name, inner = str(each.get("name", "")), _list(each.get("tools"))
        for one in inner or [each]:
            own = str(one.get("name", ""))
            if one.get("type") == "custom" and own == "exec":
                tools |= {found: (CODE, found) for found in CODE_MODE_TOOL.findall(one["description"])}
            elif own:
                tools[f"{name}{own}" if inner else own] = (name if inner else "", own)
    return tools


def _openai_call(call: Chosen, form: str, name: str, number: str) -> Json:
    if form == CODE:
        # A tool that the description leaves out is found by its name.
        named = json.dumps(name) if name else f"ALL_TOOLS.find(({{name}}) => /^{call.tool}$/.test(name)).name"
        code = f"text(JSON.stringify(await tools[{named}]({json.dumps(call.words)})));"
        own = {"type": "custom_tool_call", "id": f"ctc_{number}", "call_id": f"call_{number}"}
        return {**own, "name": "exec", "input": code}
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
    return item | {"arguments": json.dumps(call.words)} | ({"namespace": form} if form else {})


def _list(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _result(content: object) -> ToolResult:
    return ToolResult(json.dumps(content))
