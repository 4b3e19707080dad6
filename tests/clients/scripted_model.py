"""A model that says what a test wrote for it, behind the APIs that Claude Code, Codex and Gemini CLI speak.

A script is a function: it gets the last thing the model was told (the user's words, or a tool's result) and returns
`call(tool, **arguments)` or a text. What the client asks beside the conversation (a title for it, a summary) offers no
tools, and is answered with a word.
"""

import http.server
import json
import threading
import uuid
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    tool: str
    arguments: dict


def call(tool, /, **arguments):
    return Call(tool, arguments)


class ScriptedModel:
    def __init__(self, script):
        self.script = script
        # What the model was told, in order: for the message of a test that fails.
        self.prompts = []
        # Whole requests, as text: instructions, reminders, descriptions of skills.
        self.everything = []
        # Names of the tools that the client offered with the last of them.
        self.tools = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def reply(self, prompt, *, tools):
        if not tools:
            return "ok"
        self.tools = [each.get("name") or each.get("type") for each in tools]
        self.prompts.append(prompt)
        return self.script(prompt)


def _handler(model):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_error(404)

        def do_HEAD(self):
            self.send_error(404)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
            model.everything.append(json.dumps(body, ensure_ascii=False))
            if self.path.split("?")[0].endswith("/v1/messages"):
                events = _anthropic(model, body)
            elif self.path.endswith("/responses"):
                events = _responses(model, body)
            elif "GenerateContent" in self.path:
                self._stream(_gemini(model, body))
                return
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in events:
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def _stream(self, answer):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(f"data: {json.dumps(answer)}\r\n\r\n".encode())

    return Handler


def _gemini(model, body):
    parts = body["contents"][-1]["parts"]
    pieces = [part.get("functionResponse", {}).get("response") or part.get("text", "") for part in parts]
    tools = [tool for each in body.get("tools", ()) for tool in each.get("functionDeclarations", ())]
    reply = model.reply("\n".join(each if isinstance(each, str) else json.dumps(each) for each in pieces), tools=tools)
    is_call = isinstance(reply, Call)
    part = {"functionCall": {"name": reply.tool, "args": reply.arguments}} if is_call else {"text": reply}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    content = {"role": "model", "parts": [part]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


def _text_of(content):
    """Whatever a message holds, as one text."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _text_of(content.get("text") or content.get("content") or content.get("output") or "")
    return "\n".join(map(_text_of, content or ()))


def _anthropic(model, body):
    prompt = next(each for each in reversed(body["messages"]) if each["role"] == "user")
    reply = model.reply(_text_of(prompt["content"]), tools=body.get("tools"))
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": body["model"]}
    yield {"type": "message_start", "message": message | {"content": [], "stop_reason": None, "usage": usage}}
    if isinstance(reply, Call):
        names = [each.get("name", "") for each in body["tools"]]
        # One of ours, or the client's own.
        name = next(name for name in names if name == reply.tool or name.endswith(f"__{reply.tool}"))
        block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = "tool_use" if isinstance(reply, Call) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _responses(model, body):
    spoken = [each for each in body["input"] if each.get("role") == "user" or each["type"].endswith("_output")]
    prompt = _text_of(spoken[-1].get("content") or spoken[-1].get("output"))
    reply = model.reply(prompt, tools=body.get("tools"))
    response = {"id": f"resp_{uuid.uuid4().hex}"}
    if isinstance(reply, Call):
        spaces = [
            each["name"]
            for each in body["tools"]
            if each.get("type") == "namespace" and reply.tool in [tool["name"] for tool in each["tools"]]
        ]
        about = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
        # Codex's own tools are in no namespace.
        about |= {"namespace": spaces[0]} if spaces else {}
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": f"call_{uuid.uuid4().hex}"} | about
    else:
        content = [{"type": "output_text", "text": reply, "annotations": []}]
        item = {"type": "message", "id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "content": content}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    yield {"type": "response.completed", "response": response | {"output": [item], "usage": usage}}
