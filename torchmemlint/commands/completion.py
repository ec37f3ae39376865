"""``torchmemlint completion``: a script that completes commands, options and their values in a shell.

Written from the parsers themselves. shtab does that too, but not for fish, and argcomplete starts Python at every key.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchmemlint.rules import ALL_RULES

SHELLS = ("bash", "zsh", "fish")
_RULES = frozenset({"RULES", "RULE"})
_FILES = frozenset({"FILE", "PATH", "LOG", "ROOT", "FOLDER", "FILE:LINE", "PATH|FILE:LINE", "FILE|KEY=VALUE", "[FORMAT=]PATH"})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its spellings, what is said of it, and what its value may be.

    takes_value    a value follows; ``words`` are those that it may be, ``files`` whether it is a file; neither: anything
    """

    names: tuple[str, ...]
    help: str
    takes_value: bool = False
    words: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command's options, and what its arguments may be: words, files, or both."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    files: bool = False


def script(shell: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for one of ``SHELLS``; ``check`` is the command where none is named."""
    commands = [_command(name, parser) for name, parser in parsers.items()]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    options = []
    words: tuple[str, ...] = ()
    files = False
    for action in parser._actions:
        kind = str(action.metavar or "")
        choices = tuple(str(choice) for choice in action.choices or ())
        if kind in _RULES:
            choices = tuple(word for rule in ALL_RULES for word in (rule.code, rule.name))
        if not action.option_strings:
            words, files = choices, kind in _FILES
        else:
            takes_value = action.nargs not in (0, "?")
            options.append(
                Option(
                    tuple(action.option_strings), _sentence(action.help), takes_value, choices, takes_value and kind in _FILES
                )
            )
    return Command(name, _sentence(parser.description), tuple(options), words, files)


def _sentence(text: str | None) -> str:
    """The first sentence, without what a shell or its quotes could take for their own."""
    first = re.split(r"(?<=[.:;]) ", " ".join((text or "").split()))[0]
    return re.sub(r"[`'\"\\$\[\]!]", "", first).rstrip(".:;")


# --- bash -----------------------------------------------------------------------------------------------------------


def _bash(commands: Sequence[Command]) -> str:
    names = " ".join(command.name for command in commands)
    cases = []
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f"{command.name}:{name}" for name in option.names)
                reply = _compgen(option.words, option.files)
                cases.append(f"        {pattern}) {reply + '; ' if reply else ''}return ;;")
    options = [f'        {command.name}) options="{" ".join(_spellings(command.options))}" ;;' for command in commands]
    arguments = [
        f"        {command.name}) {_compgen(command.words, command.files)} ;;"
        for command in commands
        if command.words or command.files
    ]
    return f"""\
# bash completion of torchmemlint: source it, or put it into a folder of bash-completion.
_torchmemlint_files() {{
    local IFS=$'\\n'  # one name a line: names may have spaces
    COMPREPLY+=($(compgen -f -- "$cur"))
}}

_torchmemlint() {{
    local cur prev command=check options="" first=1 i
    cur=${{COMP_WORDS[COMP_CWORD]}}
    prev=${{COMP_WORDS[COMP_CWORD-1]}}
    # bash splits --option=value into three words.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${{COMP_WORDS[i]}} in
            {names.replace(" ", "|")}) command=${{COMP_WORDS[i]}}; first=0; break ;;
            -*) ;;
            *) first=0 ;;
        esac
    done
    COMPREPLY=()
    case $command:$prev in
{chr(10).join(cases)}
    esac
    case $command in
{chr(10).join(options)}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    case $command in
{chr(10).join(arguments)}
    esac
    if [[ $first == 1 ]]; then
        COMPREPLY+=($(compgen -W "{names}" -- "$cur"))
    fi
}}
complete -o filenames -F _torchmemlint torchmemlint
"""


def _compgen(words: Sequence[str], files: bool) -> str:
    parts = [f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$cur"))'] if words else []
    return "; ".join([*parts, *(["_torchmemlint_files"] if files else [])])


def _spellings(options: Iterable[Option]) -> list[str]:
    return [name for option in options for name in option.names]


# --- zsh ------------------------------------------------------------------------------------------------------------


def _zsh(commands: Sequence[Command]) -> str:
    names = "|".join(command.name for command in commands)
    described = "\n".join(f"    '{command.name}:{command.help}'" for command in commands)
    cases = []
    for command in commands:
        specs = [_zsh_option(option, name) for option in command.options for name in option.names]
        action = _zsh_action(command.words, command.files)
        specs.append("'*:path:_torchmemlint_first'" if command.name == "check" else f"'*:argument:{action}'" if action else "")
        body = " \\\n        ".join(spec for spec in specs if spec)
        cases.append(f"    ({command.name})\n      _arguments -S \\\n        {body} ;;")
    return f"""\
#compdef torchmemlint
# zsh completion of torchmemlint: put it as _torchmemlint into a folder of $fpath, or source it after compinit.
_torchmemlint_commands() {{
  local -a commands=(
{described}
  )
  _describe -t commands command commands
}}

_torchmemlint_first() {{
  _alternative 'commands::_torchmemlint_commands' 'files::_files'
}}

_torchmemlint() {{
  local command=check
  local -i i
  for ((i = 2; i < CURRENT; i++)); do
    case ${{words[i]}} in
      ({names}) command=${{words[i]}}; words[i]=(); ((CURRENT--)); break ;;
    esac
  done
  case $command in
{chr(10).join(cases)}
  esac
}}

if [[ ${{funcstack[1]}} == _torchmemlint ]]; then
  _torchmemlint "$@"
else
  compdef _torchmemlint torchmemlint
fi
"""


def _zsh_option(option: Option, name: str) -> str:
    value = f":value:{_zsh_action(option.words, option.files)}" if option.takes_value else ""
    form = f"{name}=" if option.takes_value and name.startswith("--") else name
    return f"'{form}[{option.help.replace(':', ' ')}]{value}'"


def _zsh_action(words: Sequence[str], files: bool) -> str:
    return f"({' '.join(words)})" if words else "_files" if files else ""


# --- fish -----------------------------------------------------------------------------------------------------------


def _fish(commands: Sequence[Command]) -> str:
    names = " ".join(command.name for command in commands)
    lines = []
    for command in commands:
        when = f"-n '__torchmemlint_command {command.name}'"
        lines.append(f"complete -c torchmemlint -n __torchmemlint_first -a {command.name} -d '{command.help}'")
        if command.words:
            lines.append(f"complete -c torchmemlint {when} -a '{' '.join(command.words)}'")
        if not command.files:
            lines.append(f"complete -c torchmemlint {when} -f")
        for option in command.options:
            spelled = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = ""
            if option.takes_value:
                value = " -r" if option.files else f" -x -a '{' '.join(option.words)}'" if option.words else " -x"
            described = f" -d '{option.help}'" if option.help else ""
            lines.append(f"complete -c torchmemlint {when} {spelled}{value}{described}")
    return f"""\
# fish completion of torchmemlint: put it as torchmemlint.fish into ~/.config/fish/completions, or source it.
function __torchmemlint_command --description 'Whether this is the command of the line'
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        if contains -- $word {names}
            test $word = $argv[1]
            return
        end
    end
    test check = $argv[1]
end

function __torchmemlint_first --description 'Whether no command and no path is there yet'
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        string match -q -- '-*' $word; or return 1
    end
end

{chr(10).join(lines)}
"""
