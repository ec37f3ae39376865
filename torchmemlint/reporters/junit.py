"""JUnit's XML, which most CI systems show as tests: a suite for each file, a case for each finding.

https://github.com/windyroad/JUnit-Schema/blob/master/JUnit.xsd is the commonest description; there is no official one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from torchmemlint.files.quoting import portable, quoted
from torchmemlint.findings import Finding
from torchmemlint.reporters import Context
from torchmemlint.reporters.style import place, place_in_file

# https://www.w3.org/TR/xml/#charsets; newlines and tabs would come back as spaces from an attribute.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(findings: Sequence[Finding], context: Context) -> str:
    rows = ['<?xml version="1.0" encoding="UTF-8"?>']
    total = len(findings)
    rows.append(f'<testsuites name="torchmemlint" tests="{total or 1}" failures="{total}" errors="0">')
    if not findings:
        rows.append('  <testsuite name="torchmemlint" tests="1" failures="0" errors="0" skipped="0">')
        rows.append('    <testcase name="nothing to report" classname="torchmemlint" time="0"/>')
        rows.append("  </testsuite>")
    for path, group in groupby(findings, key=lambda one: one.path):
        inside = list(group)
        name = _attribute(_path(path, context))
        rows.append(f'  <testsuite name={name} tests="{len(inside)}" failures="{len(inside)}" errors="0" skipped="0">')
        for finding in inside:
            rows += _case(finding, context)
        rows.append("  </testsuite>")
    rows.append("</testsuites>")
    return "\n".join(rows) + "\n"


def _case(finding: Finding, context: Context) -> list[str]:
    at = context.in_file(finding).span.start
    details = [f"{word}: {text}" for word, text in finding.details]
    text = "\n".join([f"{place(finding)}: {finding.code} {finding.message}", *details])
    name = _attribute(f"{finding.code} {finding.name} {place_in_file(finding)}")
    path = _attribute(_path(finding.path, context))
    return [
        f'    <testcase name={name} classname={path} file={path} line="{at.row}" time="0">',
        f"      <failure message={_attribute(finding.message)} type={_attribute(finding.severity.value)}>{_text(text)}</failure>",
        "    </testcase>",
    ]


def _path(path: str, context: Context) -> str:
    """In quotes where XML cannot hold it."""
    shown = context.path(path)
    return quoted(shown) if _NOT_XML.search(shown) else portable(shown)


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", text))
