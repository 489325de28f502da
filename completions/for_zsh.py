"""Write the completion of a program for zsh."""

from __future__ import annotations

from shapes import Option, Shape, Value, header

ACTIONS = {
    "revision": "__envhist_revisions",
    "name": "__envhist_names",
    "timeline": "__envhist_timelines",
    "remote": "__envhist_remotes",
    "directory": "_directories",
    "file": "_files",
    "command": "_cmdstring",
    "subcommand": "__envhist_subcommands",
    "free": "",
}
MACHINERY = r"""
# What the program says: words, each with what it is.
__envhist_described() {
  local -a told each
  local line
  for line in "${(@f)$(_call_program $1 git envhist complete $1 2>/dev/null)}"; do
    [[ -n $line ]] && told+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  _describe -V -t $1 "${1%s}" told
}
__envhist_revisions() {
  [[ $PREFIX == -* ]] && return 1
  compset -P '*..'
  __envhist_described revisions
}
__envhist_names() { __envhist_described names }
__envhist_timelines() { __envhist_described timelines }
__envhist_remotes() {
  local -a remotes
  remotes=(${(f)"$(_call_program remotes git remote 2>/dev/null)"})
  _describe -t remotes remote remotes
}
"""


def zsh(program: str, shapes: list[Shape]) -> str:
    """Return the file of one program."""
    head = f"#compdef {program}\n#description {header(program).partition(';')[0]}\n# {header(program)}.\n"
    if len(shapes) == 1:
        return f"{head}{MACHINERY}\n{_arguments(shapes[0], '')}\n"
    names = [shape.name for shape in shapes if shape.name]
    listed = "".join(f"    {_quoted(f'{shape.name}:{shape.summary}')}\n" for shape in shapes if shape.name)
    cases = "".join(f"  {shape.name})\n{_arguments(shape, '    ')} ;;\n" for shape in shapes if shape.name)
    return f"""{head}{MACHINERY}
__envhist_subcommands() {{
  local -a subcommands
  subcommands=(
{listed}  )
  _describe -t subcommands subcommand subcommands
}}
# A moment is asked for where no subcommand begins so.
__envhist_first() {{ __envhist_subcommands || __envhist_revisions }}

__envhist_subcommand() {{
  case $words[1] in
{cases}  esac
}}

integer at=${{words[(I)({"|".join(names)})]}}
if (( at > 1 && at < CURRENT )); then
  # The first of them counts.
  at=${{words[(i)({"|".join(names)})]}}
  words=("${{(@)words[at,-1]}}")
  (( CURRENT -= at - 1 ))
  __envhist_subcommand
else
{_arguments(shapes[0], "  ", first="__envhist_first")}
fi
"""


def _arguments(shape: Shape, indent: str, first: str = "") -> str:
    lines = [f"{indent}_arguments -s -S"]
    for option in shape.options:
        lines += _option(option, shape)
    operands = list(shape.operands)
    for place, value in enumerate(operands, start=1):
        lines.append(_quoted(f"{place}:{value.kind}:{first or _action(value)}"))
    lines.append(_quoted("*:path:_files") if not _ends_in_command(shape) else _quoted("*:command:_cmdstring"))
    return f" \\\n{indent}  ".join(lines)


def _ends_in_command(shape: Shape) -> bool:
    return shape.name in ("run", "verify", "bisect", "effect")


def _option(option: Option, shape: Shape) -> list[str]:
    """Yield the specification of an option, one word per spelling."""
    star = "*" if option.multiple else ""
    others = "" if option.multiple or len(option.spellings) == 1 else f"({' '.join(option.spellings)})"
    told = "[" + option.help.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:") + "]"
    return [
        _quoted(f"{others}{star}{_spelled(one, option)}{told}{_value(option, shape)}")
        for one in option.spellings
    ]


def _spelled(spelling: str, option: Option) -> str:
    if option.is_flag:
        return spelling
    if not option.takes_next:
        return spelling + ("=-" if spelling.startswith("--") else "-")
    return spelling + ("=" if spelling.startswith("--") else "+")


def _value(option: Option, shape: Shape) -> str:
    if option.is_flag:
        return ""
    value = shape.value(option)
    return f"{':' if option.takes_next else '::'}{value.kind}:{_action(value)}"


def _action(value: Value) -> str:
    return f"({' '.join(value.words)})" if value.words else ACTIONS[value.kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
