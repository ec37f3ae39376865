"""``torchmemlint completion``: a script that completes commands, options and their values in a shell.

shtab writes it from the parsers. What it has no form for is a command that may be left out: ``torchmemlint src`` is
``torchmemlint check src``. So the options of ``check`` are those of the program as well, and a few lines for each shell offer
files beside the names of the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

SHELLS = ("bash", "zsh", "fish", "powershell")
_RULES = frozenset({"RULES", "RULE"})
_FILES = frozenset({"FILE", "PATH", "LOG", "ROOT", "FOLDER", "FILE:LINE", "PATH|FILE:LINE", "FILE|KEY=VALUE", "[FORMAT=]PATH"})
_MORE_FILES = frozenset({"DIR", "FILE[:LINE|:FUNCTION]", "REPORT.json"})

_FILES_BESIDE_COMMANDS = {
    "bash": "_shtab_torchmemlint_pos_0_COMPGEN=_shtab_compgen_files",
    "powershell": "$_shtab_torchmemlint_compgens['_shtab_torchmemlint_pos_0'] = '_shtab_powershell_compgen_files'",
    "zsh": """\
functions[_torchmemlint_command]=$functions[_shtab_torchmemlint]
_torchmemlint_check=($_shtab_torchmemlint_options)
_torchmemlint_paths() { _alternative 'commands::_shtab_torchmemlint_commands' 'files::_files' }
_shtab_torchmemlint() {
  local -a before=("${(@)words[2,CURRENT-1]}") names=(%s)
  if (( ${#before:*names} )); then
    _torchmemlint_command "$@"
  else
    _arguments -s $_torchmemlint_check '*:path:_torchmemlint_paths'
  fi
}""",
}


def script(shell: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for one of ``SHELLS``. ``parsers`` are those of the commands, and serve for nothing else afterwards."""
    import shtab

    preamble = _FILES_BESIDE_COMMANDS.get(shell, "")
    if shell == "zsh":
        preamble %= " ".join(parsers)
    text: str = shtab.complete(_program(parsers), shell, preamble=preamble)
    if shell == "fish":  # which excluded files above
        text += "\ncomplete -c torchmemlint -n _shtab_torchmemlint_using -F\n"
    return text


def _program(parsers: Mapping[str, argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """One parser for the program, as shtab reads it: the options of ``check``, and every command as a subparser."""
    import shtab

    from torchmemlint.rules import ALL_RULES

    program = argparse.ArgumentParser("torchmemlint", parents=[parsers["check"]], add_help=False, conflict_handler="resolve")
    program._actions[:] = [action for action in program._actions if action.option_strings]
    commands = program.add_subparsers(metavar="COMMAND")
    for name, parser in parsers.items():
        commands.add_parser(name, parents=[parser], add_help=False, help=parser.description, description=parser.description)
        for action in parser._actions:
            if action.metavar in _RULES:
                action.choices = [word for rule in ALL_RULES for word in (rule.code, rule.name)]
            elif action.metavar in _FILES | _MORE_FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            if action.option_strings and action.nargs == "?":
                action.nargs = 0  # a value stands behind an equals sign only
    return program
