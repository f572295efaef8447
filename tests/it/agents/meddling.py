"""A program that changes files while agentd looks at them for it, and tells what it was given."""

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

AGENTD, OUTSIDE = sys.argv[1:3]
SECONDS = float(sys.argv[3])
EXCHANGE = 2
libc = ctypes.CDLL(None)
sys.stdin.read()
mcp = subprocess.Popen([AGENTD, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
asked = 0


def tell(message):
    mcp.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    mcp.stdin.flush()


def ask(method, params):
    global asked
    asked += 1
    tell({"id": asked, "method": method, "params": params})
    return json.loads(mcp.stdout.readline())


def call(tool, **arguments):
    answer = ask("tools/call", {"name": tool, "arguments": arguments})
    return answer["result"]["content"][0]["text"]


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def meanwhile(swaps, tries, seconds):
    """Answers of tools while pairs of names are exchanged again and again."""
    child = os.fork()
    if child == 0:
        while True:
            for one, other in swaps:
                libc.renameat2(-100, one.encode(), -100, other.encode(), EXCHANGE)
            if random.random() < 0.5:
                time.sleep(random.random() * 0.01)
    answers, end = [], time.time() + seconds
    while time.time() < end:
        for tool, arguments in tries:
            # The same again and again would be a loop.
            answers.append(call(tool, **arguments, max_lines=100 + len(answers) % 390))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return answers


ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "py", "version": "1"}})
tell({"method": "notifications/initialized"})

write("of-it.txt", "one\ntwo\n")
status, diff = call("git_status"), call("git_diff")
print("status:", "A +2 -0 of-it.txt" in status, "diff:", "+two" in diff)
subprocess.run(["git", "config", "diff.noprefix", "true"])
print("inside:", "+++ of-it.txt" in call("git_diff", path="of-it.txt"))
subprocess.run(["git", "add", "of-it.txt"])
subprocess.run(["git", "commit", "-qm", "mine"])
write("of-it.txt", "one\ntwo\nthree\n")
since = call("git_diff", since="last_commit")
print("since:", "+three" in since and "+two" not in since)
write("kept/of-it.txt", "denied words\n")
whole = call("git_diff", max_lines=77)
print("denied:", "denied words" not in whole and '"files_denied_by_policy":1' in whole)
print("left:", sorted(name for name in os.listdir(os.environ.get("TMPDIR", "/tmp")) if "look" in name))

write("d0/x", "inside\n")
os.symlink(OUTSIDE, "d1")
answers = meanwhile(
    [("d0", "d1")],
    [("git_diff", {}), ("list_files", {"path": "d0"}), ("search", {"pattern": "OUTSIDE", "path": "d0"})],
    SECONDS,
)
reached = [text for text in answers if "OUTSIDE" in text]
print("outside:", len(reached), "of", len(answers) > 20, reached[:1])

write("kept/key.txt", "DENIED\n")
write("k0/key.txt", "mine\n")
os.symlink("kept", "k1")
answers = meanwhile(
    [("k0", "k1")],
    [("read_file", {"path": "k0/key.txt"}), ("search", {"pattern": "ENIED", "path": "k0"})],
    SECONDS,
)
reached = [text for text in answers if "DENIED" in text]
print("kept:", len(reached), "of", len(answers) > 20, reached[:1])

# The policy would refuse what is left of that.
for name in ["d0", "d1", "k0", "k1", "kept"]:
    if os.path.islink(name):
        os.unlink(name)
    else:
        shutil.rmtree(name)
