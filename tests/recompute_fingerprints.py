#!/usr/bin/env python3
"""Recomputes the fingerprints of a run from the requests that a server captured, without any code of agentd.

Usage: python3 tests/recompute_fingerprints.py FILE
FILE holds {"requests": [bodies of POST /chat/completions], "fingerprints": [requestFingerprints of run.json]}.
Exit code 0: all are equal. 1: the differences are printed.
"""
import json
import sys

from check_fingerprints import request_hashes


def message(entry):
    """One message of the wire in the neutral form of the rule."""
    kept = {"role": entry["role"], "content": entry.get("content") or ""}
    calls = entry.get("tool_calls") or []
    if calls:
        kept["tool_calls"] = [dict(call["function"], id=call["id"]) for call in calls]
    if "tool_call_id" in entry:
        kept["tool_call_id"] = entry["tool_call_id"]
    return kept


def neutral(body):
    names = {"max_tokens": "maxOutputTokens", "temperature": "temperature", "tool_choice": "toolChoice"}
    return {
        "model": body["model"],
        "messages": [message(entry) for entry in body["messages"]],
        "tools": [tool["function"] for tool in body.get("tools", [])],
        "modelSettings": {names[key]: body[key] for key in names if key in body},
    }


def differences(captured):
    requests, fingerprints = captured["requests"], captured["fingerprints"]
    if len(requests) != len(fingerprints):
        yield "%d requests, %d fingerprints" % (len(requests), len(fingerprints))
    for number, (body, told) in enumerate(zip(requests, fingerprints), 1):
        for key, value in request_hashes(neutral(body)).items():
            if told[key] != value:
                yield "request %d: %s is %s, not %s" % (number, key, value, told[key])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        found = list(differences(json.load(file)))
    print("\n".join(found) or "all fingerprints are as recorded")
    sys.exit(1 if found else 0)
