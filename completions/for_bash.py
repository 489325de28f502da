"""Write the completion of a program for bash; it extends git's own."""

from __future__ import annotations

from shapes import Option, Shape, Value, bare, header

MACHINERY = r"""
# Completes the word $2 as $1 says: a kind after an @, or fixed words between commas.
__envhist_complete ()
{
	local IFS=$' \t\n'
	case "$1" in
	@revision) __envhist_revision "$2" ;;
	@name) __envhist_described "$2" names ;;
	@timeline) __envhist_described "$2" timelines ;;
	@remote) __gitcomp_nl "$(__git remote)" '' "$2" ;;
	@directory) IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$2")) ;;
	@file) IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$2")) ;;
	@command) IFS=$'\n'; COMPREPLY=($(compgen -c -- "$2")) ;;
	@free) ;;
	*) __gitcomp "${1//,/ }" '' "$2" ;;
	esac
}

# A moment, or the second one of a range.
__envhist_revision ()
{
	local lead=
	if [[ $1 == *..* ]]; then
		lead=${1%..*}..
	fi
	__envhist_described "${1#"$lead"}" revisions "$lead"
}

# What the program says begins with $1, each with what it is; where one alone is left, only the word.
__envhist_described ()
{
	local told word
	COMPREPLY=()
	while IFS= read -r told; do
		[[ ${told%%$'\t'*} == "$1"* ]] && COMPREPLY+=("$told")
	done < <(__git envhist complete "$2")
	if [ ${#COMPREPLY[@]} -le 1 ] || [ "${COMP_TYPE-9}" = 37 ]; then
		COMPREPLY=("${COMPREPLY[@]/%$'\t'*}")
		COMPREPLY=("${COMPREPLY[@]/#/${3-}}")
		[ -n "${COMPREPLY[0]-}" ] || COMPREPLY=()
		return
	fi
	local each=("${COMPREPLY[@]}")
	COMPREPLY=()
	for told in "${each[@]}"; do
		word=${told%%$'\t'*}
		[ "$word" = "$told" ] || printf -v word '%-9s (%s)' "$word" "${told#*$'\t'}"
		COMPREPLY+=("${3-}$word")
	done
	compopt -o nosort 2>/dev/null
}

# Completes what stands at the cursor, given what $options, $values and $operands say of the command.
__envhist_word ()
{
	local word at=$1 place=0 kind
	case "$cur" in
	--*=*)
		kind=" $values "
		word=" ${cur%%=*}:"
		[[ $kind == *"$word"* ]] || return
		kind=${kind#*"$word"}
		__envhist_complete "${kind%% *}" "${cur#*=}"
		return ;;
	esac
	kind=" $valued "
	if [[ $kind == *" $prev:"* ]]; then
		kind=${kind#*" $prev:"}
		__envhist_complete "${kind%% *}" "$cur"
		return
	fi
	if [[ $cur == -* ]]; then
		__gitcomp "$options"
		return
	fi
	for ((; at < cword; at++)); do
		word=${words[at]}
		if [[ " $valued " == *" $word:"* ]]; then ((at++))
		elif [[ $word != -* ]]; then ((place++)); fi
	done
	set -- $operands
	[ $# -gt 0 ] || return
	[ $place -lt $# ] || place=$(($# - 1))
	((place++))
	__envhist_complete "${!place}" "$cur"
}
"""
ENTRY = r"""
_git_@NAME@ ()
{
	local options values valued operands at=1 subcommand= first=
	# Called by git's name, or by its own.
	[[ ${words[0]##*/} == git-* ]] || while ((at < cword)) && [[ ${words[at]} != @NAME@ ]]; do ((at++)); done
	[[ ${words[0]##*/} == git-* ]] || ((at < cword)) && [[ ${words[at]} == @NAME@ ]] && ((at++))
	local each
	for each in "${words[@]:at:cword-at}"; do [[ $each != -- ]] || return; done
@CHOOSING@	__envhist_@NAME@ "$subcommand"
@FIRST@	__envhist_word "$at"
}

# Called by its own name: git's completion has what both need.
if ! declare -f __git_complete >/dev/null 2>&1 && declare -f _completion_loader >/dev/null 2>&1; then
	_completion_loader git
fi
if declare -f __git_complete >/dev/null 2>&1; then
	__git_complete git-@NAME@ _git_@NAME@ 2>/dev/null
fi
"""
CHOOSING = """\
	local after alias=${COMP_WORDS[at - 1]-} meant
	if ((at > 1)) && [[ $alias != @NAME@ && $alias != -* ]]; then
		# git has put the first word of an alias in its place; there may be more of them.
		for meant in $(__git config "alias.$alias"); do
			case " @SUBCOMMANDS@ " in
			*" $meant "*) subcommand=$meant; break ;;
			esac
		done
	fi
	for ((after = at; after < cword; after++)); do
		[ -z "$subcommand" ] || break
		case " @SUBCOMMANDS@ " in
		*" ${words[after]} "*) subcommand=${words[after]}; at=$((after + 1)); break ;;
		esac
	done
"""
FIRST = """\
	if [ -z "$subcommand" ] && [[ $cur != -* ]] && [[ " $valued " != *" $prev:"* ]]; then
		# A moment is asked for where no subcommand begins so.
		__gitcomp '@SUBCOMMANDS@'
		[ ${#COMPREPLY[@]} -eq 0 ] || return
	fi
	if [ "$subcommand" = help ]; then
		__gitcomp '@SUBCOMMANDS@'
		return
	fi
"""


def bash(program: str, shapes: list[Shape]) -> str:
    """Return the file of one program."""
    name = program.removeprefix("git-")
    subcommands = " ".join(shape.name for shape in shapes if shape.name)
    entry = ENTRY.replace("@CHOOSING@", CHOOSING if subcommands else "")
    entry = entry.replace("@FIRST@", FIRST if subcommands else "")
    entry = entry.replace("@SUBCOMMANDS@", subcommands).replace("@NAME@", name)
    cases = "".join(_case(shape) for shape in shapes)
    table = f'\n__envhist_{name} ()\n{{\n\tcase "$1" in\n{cases}\tesac\n}}\n'
    return f"# {header(program)}.\n{MACHINERY}{table}{entry}"


def _case(shape: Shape) -> str:
    options = " ".join(_listed(option) for option in shape.options if _listed(option))
    values = " ".join(
        f"{spelling}:{_told(shape.value(option))}"
        for option in shape.options
        for spelling in option.spellings
        if not option.is_flag and spelling.startswith("--")
    )
    valued = " ".join(
        f"{spelling}:{_told(shape.value(option))}"
        for option in shape.options
        for spelling in option.spellings
        if option.takes_next
    )
    operands = " ".join(_told(value) for value in shape.operands)
    return (
        f"\t'{shape.name}')\n\t\toptions='{options}'\n\t\tvalues='{values}'\n"
        f"\t\tvalued='{valued}'\n\t\toperands='{operands}' ;;\n"
    )


def _listed(option: Option) -> str:
    names = [name for name in option.spellings if name.startswith("--")]
    return " ".join(name + ("" if option.is_flag or bare(option) else "=") for name in names)


def _told(value: Value) -> str:
    return ",".join(value.words) if value.words else f"@{value.kind}"
