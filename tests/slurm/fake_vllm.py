"""Stands in for `vllm serve MODEL --host H --port P`: answers /health and chat completions, and wants its key.

python tests/slurm/fake_vllm.py MODEL --host 0.0.0.0 --port 20001
"""

from __future__ import annotations

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers with the name of the model."""

    model = ""

    def do_GET(self) -> None:
        self._send(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._send(401, {"error": {"message": "wrong key"}})
            return
        message = {"role": "assistant", "content": self.model}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "x", "object": "chat.completion", "created": 0, "model": self.model}
        self._send(200, {**whole, "choices": [choice], "usage": usage})

    def _send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    Handler.model = options.model
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()
