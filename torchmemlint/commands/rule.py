"""``torchmemlint rule``: the page of a rule, for people and for programs."""

from __future__ import annotations

import argparse
import json

from torchmemlint.errors import UsageError
from torchmemlint.project.selection import find_rule
from torchmemlint.rules import ALL_RULES, page
from torchmemlint.rules.api import Rule


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.rule) is arguments.all:
        raise UsageError("name a rule, as in `torchmemlint rule TML101`, or use `--all`")
    chosen = ALL_RULES if arguments.all else (find_rule(arguments.rule),)
    if arguments.output_format == "json":
        plain = [_plain(rule) for rule in chosen]
        print(json.dumps(plain if arguments.all else plain[0], indent=2))
    elif arguments.output_format == "markdown":
        print("\n\n".join(f"# {rule.code}: {rule.name}\n\n{rule.facts()}\n\n{page(rule.code).strip()}" for rule in chosen))
    else:
        print("\n\n\n".join(f"{rule.code} {rule.name}\n{rule.facts()}\n\n{page(rule.code).strip()}" for rule in chosen))
    return 0


def _plain(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "name": rule.name,
        "summary": rule.summary,
        "severity": rule.severity.value,
        "fix": rule.fix.value,
        "default": rule.default,
        "preview": rule.preview,
        "explanation": page(rule.code).strip(),
    }
