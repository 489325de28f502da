"""A model server for real agents: it implements the APIs of four providers and returns a fixed list of tool calls.

Each answer but the last is a tool call. The number of tool results in a request determines the next answer.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Json = dict[str, Any]
LAST_WORDS = "Done."


class Call(NamedTuple):
    """A tool call that the model returns; the name is a pattern, and the agent's first matching tool is used."""

    tool: str
    words: Json


class Asked(NamedTuple):
    """A request, independent of the provider's API."""

    tools: Sequence[str]
    results: int
    model: str
    streamed: bool


class Server(ThreadingHTTPServer):
    """Listen for requests, and remember which tools were offered."""

    calls: Sequence[Call]
    offered: set[str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_call(self, asked: Asked) -> tuple[str, Json] | None:
        self.offered |= set(asked.tools)
        if asked.results >= len(self.calls):
            return None
        wanted, words = self.calls[asked.results]
        # A request without tools asks for a title or which model to use.
        return next(((name, words) for name in asked.tools if re.fullmatch(wanted, name)), None)


@contextmanager
def model(calls: Sequence[Call]) -> Iterator[Server]:
    """Run the model server while the context is open."""
    server = Server(("127.0.0.1", 0), _Handler)
    server.calls, server.offered = calls, set()
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

    def _anthropic(self, value: Json) -> None:
        blocks = [each for row in value["messages"] for each in _list(row["content"])]
        results = sum(each.get("type") == "tool_result" for each in blocks)
        tools = [each["name"] for each in value.get("tools", [])]
        call = self.server.next_call(Asked(tools, results, value["model"], value.get("stream", False)))
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": value["model"],
            "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if call is None:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": LAST_WORDS}
        else:
            block = {"type": "tool_use", "id": f"toolu_{results}", "name": call[0], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
        stop = "end_turn" if call is None else "tool_use"
        if not value.get("stream"):
            whole = [{"type": "text", "text": LAST_WORDS}]
            self._send({**message, "content": whole, "stop_reason": "end_turn"})
            return
        self._stream([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ])  # fmt: skip

    def _openai(self, value: Json) -> None:
        results = sum(str(each.get("type")).endswith("call_output") for each in value["input"])
        # Tools of one server are in a namespace.
        spaces = {each["name"]: each.get("tools", []) for each in value["tools"] if "name" in each}
        tools = {
            f"{space}{each['name']}": (space, each["name"]) for space in spaces for each in spaces[space]
        }
        tools |= {name: ("", name) for name, inner in spaces.items() if not inner}
        call = self.server.next_call(Asked(list(tools), results, value["model"], True))
        item: Json = {"type": "message", "id": f"m_{results}", "role": "assistant"}
        if call is None:
            item["content"] = [{"type": "output_text", "text": LAST_WORDS}]
        else:
            space, name = tools[call[0]]
            item = {
                "type": "function_call",
                "id": f"fc_{results}",
                "call_id": f"call_{results}",
                "name": name,
            }
            item |= {"arguments": json.dumps(call[1])} | ({"namespace": space} if space else {})
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        answer = {"id": f"resp_{results}", "object": "response", "status": "completed", "output": [item]}
        self._stream([
            {"type": "response.created", "response": {"id": f"resp_{results}"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {**answer, "usage": usage}},
        ])  # fmt: skip

    def _completions(self, value: Json) -> None:
        results = sum(row["role"] == "tool" for row in value["messages"])
        tools = [each["function"]["name"] for each in value.get("tools", [])]
        call = self.server.next_call(Asked(tools, results, value["model"], value.get("stream", False)))
        says: Json = {"role": "assistant", "content": LAST_WORDS if call is None else None}
        if call is not None:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            says["tool_calls"] = [
                {"index": 0, "id": f"call_{results}", "type": "function", "function": function}
            ]
        why = "stop" if call is None else "tool_calls"
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
        parts = [part for row in value.get("contents", []) for part in row.get("parts", [])]
        declared = [each for tool in value.get("tools", []) for each in tool.get("functionDeclarations", [])]
        results = sum("functionResponse" in part for part in parts)
        call = self.server.next_call(Asked([each["name"] for each in declared], results, "", streamed))
        part: Json = {"text": LAST_WORDS}
        if call is not None:
            part = {"functionCall": {"name": call[0], "args": call[1]}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
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

    def _reply(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _list(content: object) -> list[Json]:
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
