#!/usr/bin/env python3
"""Recomputes the hashes of tests/data/fingerprints.json without any code of agentd.

Usage: python3 tests/check_fingerprints.py [FILE]
Exit code 0: all hashes are as recorded. 1: the differences are printed.

The rule: canonical JSON as of RFC 8785, UTF-8, then lower-case hexadecimal SHA-256.
"""
import hashlib
import json
import sys


def number(value):
    """The shortest decimal form, as ECMAScript writes it."""
    value = float(value)
    if value == 0:
        return "0"
    if value < 0:
        return "-" + number(-value)
    digits, _, exponent = ("%r" % value).partition("e")
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + ("" if fraction == "0" else fraction)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    power = point - 1
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return "%se%s%d" % (mantissa, "+" if power >= 0 else "-", abs(power))


def canonical(value):
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"


def sha256(value):
    return hashlib.sha256(canonical(value).encode("utf-8")).hexdigest()


def arguments(text):
    """A call's arguments as they are sent, canonical: what is no JSON object is sent inside one."""
    try:
        sent = json.loads(text)
    except ValueError:
        sent = None
    return canonical(sent if isinstance(sent, dict) else {"malformed_arguments": text})


def message(entry):
    kept = {"role": entry["role"], "content": entry["content"]}
    if entry.get("tool_calls"):
        kept["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "arguments": arguments(call["arguments"])}
            for call in entry["tool_calls"]
        ]
    if "tool_call_id" in entry:
        kept["tool_call_id"] = entry["tool_call_id"]
    return kept


def request_hashes(request):
    system = "\n\n".join(m["content"] for m in request["messages"] if m["role"] == "system")
    messages = [message(m) for m in request["messages"] if m["role"] != "system"]
    tools = [{key: tool[key] for key in ("name", "description", "parameters")} for tool in request["tools"]]
    settings = request["modelSettings"]
    whole = {
        "model": request["model"],
        "systemPrompt": system,
        "messages": messages,
        "tools": tools,
        "modelSettings": settings,
    }
    return {
        "systemPromptHash": sha256(system),
        "messagesHash": sha256(messages),
        "toolsHash": sha256(tools),
        "modelSettingsHash": sha256(settings),
        "requestHash": sha256(whole),
        "messageCount": len(messages),
        "toolCount": len(tools),
    }


def proposal_hash(proposal):
    keys = ("kind", "repo", "issue", "step", "name", "argsCanonicalJson")
    return sha256({key: proposal[key] for key in keys})


def differences(vectors):
    for case in vectors["canonical"]:
        text = canonical(case["value"])
        if text != case["text"] or sha256(case["value"]) != case["sha256"]:
            yield "canonical, %s: %s" % (case["why"], text)
    for case in vectors["requests"]:
        for key, value in request_hashes(case["request"]).items():
            if case["hashes"][key] != value:
                yield "request, %s: %s is %s" % (case["why"], key, value)
    for case in vectors["proposals"]:
        if proposal_hash(case["proposal"]) != case["proposalHash"]:
            yield "proposal, %s: %s" % (case["why"], proposal_hash(case["proposal"]))


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/data/fingerprints.json"
    with open(path, encoding="utf-8") as file:
        found = list(differences(json.load(file)))
    print("\n".join(found) or "all hashes are as recorded")
    sys.exit(1 if found else 0)
