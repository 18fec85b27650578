"""Completion scripts for bash, zsh and fish, written from the table.

Words of the table are fixed; names of objects are asked of the running broker with `list_names`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from management.ctl.parsing import GENERAL
from management.ctl.table import Command, Parameter

_LIST_NAMES = "ctl -q --timeout 2 list_names"


def _words(parameters: tuple[Parameter, ...]) -> list[str]:
    return [word for one in parameters if one.is_option for word in (one.name, *one.also)]


def _function(program: str) -> str:
    return "_" + re.sub(r"\W", "_", program) + "_ctl"


def _values(parameter: Parameter) -> str:
    """What may stand for a parameter: words, or `@noun` for names that are asked for."""
    if parameter.choices:
        return " ".join(parameter.choices)
    return f"@{parameter.names}" if parameter.names else ""


def bash(program: str, commands: Mapping[str, Command]) -> str:
    """A script for `source` or /etc/bash_completion.d."""
    function = _function(program)
    general = " ".join(_words(GENERAL))
    rows = []
    for command in commands.values():
        options = " ".join(_words(command.parameters))
        values = [_values(one) for one in command.parameters if not one.is_option]
        many = any(one.many for one in command.parameters)
        columns = " ".join(command.columns)
        rest = columns if many and columns else ""
        rows.append(
            f"    {command.name}) options='{options}'; values=("
            + " ".join(f"'{value}'" for value in values)
            + f"); rest='{rest}' ;;"
        )
    valued = "|".join(word for one in GENERAL if not one.flag for word in (one.name, *one.also))
    table = "\n".join(rows)
    return f"""\
# Completion of `{program} ctl` for bash. Written by `{program} ctl completion bash`.
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local program=${{COMP_WORDS[0]}} command='' options='' rest='' count=0 at word
  local values=() vhost=()
  COMPREPLY=()
  [[ ${{COMP_WORDS[1]}} == ctl ]] || return 0
  for ((at = 2; at < COMP_CWORD; at++)); do
    word=${{COMP_WORDS[at]}}
    case $word in
      -p|--vhost) vhost=(-p "${{COMP_WORDS[at+1]}}"); ((at++)) ;;
      {valued}) ((at++)) ;;
      -*) ;;
      *) if [[ -z $command ]]; then command=$word; else ((count++)); fi ;;
    esac
  done
  case $previous in
    -p|--vhost) set -- @vhosts ;;
    -f|--format|--formatter) set -- json text tsv csv pretty_table ;;
    *)
      if [[ -z $command ]]; then
        set -- {" ".join(commands)} {general}
      else
        case $command in
{table}
        esac
        if [[ $command == help ]]; then set -- {" ".join(commands)}
        elif [[ $current == -* ]]; then set -- $options {general}
        elif [[ -n $rest && $count -ge $((${{#values[@]}} - 1)) ]]; then set -- $rest
        else set -- ${{values[count]}}
        fi
      fi ;;
  esac
  if [[ $1 == @* ]]; then
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$("$program" {_LIST_NAMES} "${{vhost[@]}}" "${{1#@}}" \
2>/dev/null | sed 's/[\\\\"$`]/\\\\&/g; s/[^A-Za-z0-9_.:\\/@%+,=-]/\\\\&/g')" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$*" -- "$current"))
  fi
}}
complete -o default -F {function} {program}
"""


def zsh(program: str, commands: Mapping[str, Command]) -> str:
    """A script for a directory of $fpath; it uses the one for bash."""
    return f"#compdef {program}\nautoload -U +X bashcompinit && bashcompinit\n" + bash(
        program, commands
    )


def fish(program: str, commands: Mapping[str, Command]) -> str:
    """A script for ~/.config/fish/completions."""
    names = " ".join(commands)
    base = f"complete -c {program} -n '__fish_seen_subcommand_from ctl"
    lines = [
        f"# Completion of `{program} ctl` for fish. Written by `{program} ctl completion fish`.",
        f"set -l commands {names}",
    ]
    for command in commands.values():
        help = _quoted(command.help.split(". ")[0].rstrip("."))
        lines.append(
            f"{base}; and not __fish_seen_subcommand_from $commands' -f -a {command.name} -d {help}"
        )
        lines += [
            _fish_parameter(program, one, f"__fish_seen_subcommand_from {command.name}")
            for one in command.parameters
            if one.is_option or _values(one)
        ]
    lines += [_fish_parameter(program, one, "__fish_seen_subcommand_from ctl") for one in GENERAL]
    return "\n".join(lines) + "\n"


def _fish_parameter(program: str, parameter: Parameter, condition: str) -> str:
    line = f"complete -c {program} -n '{condition}'"
    if parameter.is_option:
        for word in (parameter.name, *parameter.also):
            line += f" -l {word[2:]}" if word.startswith("--") else f" -s {word[1:]}"
        line += "" if parameter.flag else " -r"
    values = _values(parameter)
    if values.startswith("@"):
        line += f" -f -a '({program} {_LIST_NAMES} {values[1:]} 2>/dev/null)'"
    elif values:
        line += f" -f -a '{values}'"
    return line + f" -d {_quoted(parameter.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[str, Mapping[str, Command]], str]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
