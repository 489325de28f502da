"""A fake model: a server with the interface of a model that answers from a script."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

SCRIPT = []
"""The next answers: each a text, or a tool and its arguments."""


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        said = SCRIPT.pop(0) if SCRIPT else "done"
        message = {"role": "assistant", "content": said if isinstance(said, str) else None}
        if not isinstance(said, str):
            called = {"name": said[0], "arguments": json.dumps(said[1])}
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": called}]
        reason = "stop" if isinstance(said, str) else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "none", "choices": [choice]}
        data = json.dumps({**answer, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve():
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["OPENAI_BASE_URL"] = os.environ["OPENAI_API_BASE"] = (
        f"http://127.0.0.1:{server.server_port}/v1"
    )
