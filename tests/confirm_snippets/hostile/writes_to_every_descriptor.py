"""Writes answers into whatever is open, and ends the process at once."""

import json
import os

RUN = {"live_bytes": [0] * 9, "nodes": [0] * 9, "seen": "tensor", "place": "real", "device": "cpu"}
lines = ["[" * 100_000, "{" * 1000, "\x00\xff", "null", "17", json.dumps({"sandbox": "namespaces", "torch": "1"})]
lines += [json.dumps({"variant": variant, "run": RUN}) for variant in ("before", "after")] + [json.dumps({"end": True})]
for descriptor in map(int, os.listdir("/proc/self/fd")):
    if descriptor > 2:
        for line in lines:
            try:
                os.write(descriptor, line.encode("utf-8", "surrogatepass") + b"\n")
            except OSError:
                break
if EXIT:
    os._exit(0)
