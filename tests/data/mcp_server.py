"""An MCP server for tests, in plain Python: tools/list and tools/call over stdio, or over HTTP with --http.

Tools: echo, big{bytes} (in lines of 40 with lines{true}), sleep{ms}, fail{class}, refuse, whoami, count, environment, exit, child.
Over HTTP a call with the argument status{NUMBER} is answered with that status of HTTP and nothing else.
With --changing there is change{add, drop, describe} too: it changes what is listed, and says so before it answers; an added tool answers with its name.
Flags: --http (prints its port), --sessions (with it: sessions, forgotten whenever the tool "exit" would be called), --broken (one tool with a broken schema), --refuse-initialize, --mute, --notes FILE
(appends what happens: start, call NAME, cancelled), --list-once (the second list is an error), --name WORD (only tools whose name begins with it),
--odd (there is odd{result}: its answer is that text, which is JSON), --chatty (over stdio it writes 1,500 lines that are no messages, and one before each answer).
"""

import http.server
import json
import os
import subprocess
import sys
import threading
import time

ARGS = sys.argv[1:]
NOTES = ARGS[ARGS.index("--notes") + 1] if "--notes" in ARGS else None
LOCK = threading.Lock()
ADDED, DROPPED, DESCRIBED = [], [], []
# What is said before the next answer.
SAID = []


def note(line):
    if NOTES:
        with LOCK, open(NOTES, "a") as notes:
            notes.write(line + "\n")


def tool(name, properties, required=(), **more):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


def tools():
    listed = [
        tool("whoami", {"user_id": {"type": "string"}, "issue": {"type": "integer"}, "repo": {"type": "string"},
                        "text": {"type": "string"}}, ["user_id"]),
        tool("echo", {"text": {"type": "string"}}, ["text"], annotations={"readOnlyHint": True}),
        tool("big", {"bytes": {"type": "integer"}, "lines": {"type": "boolean"}}, ["bytes"]),
        tool("sleep", {"ms": {"type": "integer"}}, ["ms"]),
        tool("fail", {"class": {"type": "string"}}),
        tool("refuse", {}),
        tool("count", {}),
        tool("environment", {}),
        tool("exit", {}),
        tool("child", {}),
    ]
    if "--changing" in ARGS:
        names = {"type": "array", "items": {"type": "string"}}
        listed.append(tool("change", {"add": names, "drop": names, "describe": names}))
        listed.extend(tool(name, {}) for name in ADDED if not name.startswith("unfit"))
        listed = [one for one in listed if one["name"] not in DROPPED]
        for one in listed:
            if one["name"] in DESCRIBED:
                one["description"] = f"Another {one['name']}."
        listed.extend({"name": name} for name in ADDED if name.startswith("unfit"))
    if "--odd" in ARGS:
        listed.append(tool("odd", {"result": {"type": "string"}}))
    if "--broken" in ARGS:
        listed.append({"name": "broken", "inputSchema": {"type": 42}})
    return listed


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def call(name, arguments):
    note(f"call {name}")
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "big" and arguments.get("lines"):
        return text(("x" * 39 + "\n") * (arguments["bytes"] // 40))
    if name == "big":
        return text("x" * arguments["bytes"])
    if name == "sleep":
        time.sleep(arguments["ms"] / 1000)
        return text("slept")
    if name == "fail":
        told = json.dumps({"error_type": arguments["class"], "message": "as you wish"}) if "class" in arguments else "no"
        return text(told, isError=True)
    if name == "odd" and "--odd" in ARGS:
        return json.loads(arguments["result"])
    if name == "refuse":
        raise ValueError("refused")
    if name == "change" and "--changing" in ARGS:
        ADDED.extend(arguments.get("add", []))
        DROPPED.extend(arguments.get("drop", []))
        DESCRIBED.extend(arguments.get("describe", []))
        SAID.append({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("changed")
    if name in ADDED and name not in DROPPED:
        return text(f"I am {name}")
    if name == "whoami":
        return text(json.dumps(arguments, sort_keys=True))
    if name == "count":
        with LOCK, open(os.environ["COUNT_FILE"], "a") as lines:
            lines.write("1\n")
        return text("counted")
    if name == "environment":
        return text(json.dumps({"names": sorted(os.environ), "cwd": os.getcwd()}))
    if name == "exit":
        os._exit(7)
    if name == "child":
        return text(str(subprocess.Popen(["sleep", "31.4171"]).pid))
    raise KeyError(f"Unknown tool: {name}")


def answer(message):
    """The reply to one message, or None."""
    method, params = message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        note("cancelled")
    if "id" not in message or method is None:
        return None
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize" and "--refuse-initialize" in ARGS:
        return {**reply, "error": {"code": -32603, "message": "not today"}}
    if method == "initialize":
        return {**reply, "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                    "serverInfo": {"name": "test", "version": "1"}}}
    if method == "tools/list" and "--list-once" in ARGS and "lists" in DESCRIBED:
        return {**reply, "error": {"code": -32603, "message": "once is enough"}}
    if method == "tools/list":
        if "cursor" in params:
            DESCRIBED.append("lists")
        # Two pages.
        at = int(params.get("cursor", 0))
        page = {"tools": tools()[at : at + 6]}
        if at + 6 < len(tools()):
            page["nextCursor"] = str(at + 6)
        return {**reply, "result": page}
    if method == "tools/call":
        try:
            return {**reply, "result": call(params["name"], params.get("arguments") or {})}
        except KeyError as error:
            return {**reply, "error": {"code": -32602, "message": error.args[0]}}
        except ValueError as error:
            return {**reply, "error": {"code": -32603, "message": str(error), "data": {"error_type": "Own"}}}
    if method == "ping":
        return {**reply, "result": {}}
    return {**reply, "error": {"code": -32601, "message": f"no method {method}"}}


SESSIONS = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        note(f"header {self.headers.get('x-test')}")
        if "--sessions" in ARGS:
            method, name = message.get("method"), (message.get("params") or {}).get("name")
            if method == "initialize":
                note("session")
                SESSIONS.append(f"s{len(SESSIONS)}")
            elif self.headers.get("mcp-session-id") not in SESSIONS[-1:]:
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            elif name == "exit":
                SESSIONS.append("forgotten")
                message["params"]["name"] = "count"
        status = ((message.get("params") or {}).get("arguments") or {}).get("status")
        if status:
            self.send_response(status)
            self.send_header("retry-after", "7")
            self.send_header("content-length", "8")
            self.end_headers()
            self.wfile.write(b"not you\n")
            return
        reply = answer(message)
        body = b"" if reply is None else json.dumps(reply).encode()
        kind = "application/json"
        if SAID:
            kind, said = "text/event-stream", [*SAID, reply]
            SAID.clear()
            body = "".join(f"data: {json.dumps(one)}\n\n" for one in said).encode()
        self.send_response(200 if reply else 202)
        if SESSIONS:
            self.send_header("mcp-session-id", SESSIONS[-1])
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


def serve_stdio():
    def respond(message):
        reply = answer(message)
        if reply is not None:
            with LOCK:
                for one in SAID:
                    sys.stdout.write(json.dumps(one) + "\n")
                SAID.clear()
                if "--chatty" in ARGS:
                    sys.stdout.write('{"level":"info","id":1,"message":"I answer"}\n')
                sys.stdout.write(json.dumps(reply) + "\n")
                sys.stdout.flush()

    print("test server: hello", file=sys.stderr, flush=True)
    if "--chatty" in ARGS:
        for number in range(1500):
            print(f"INFO {number}: {os.environ['DECLARED']} is declared", flush=number == 1499)
    for line in sys.stdin:
        if "--mute" not in ARGS:
            threading.Thread(target=respond, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    note("start")
    if "--http" in ARGS:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_address[1], flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        server.serve_forever()
    else:
        serve_stdio()
