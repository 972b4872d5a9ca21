"""hostler completion, and the hidden `hostler __complete` that its scripts call"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from resources.visible import visible
from starter.outlet import say, say_script

# bash itself splits words at = and :, which hostler does not: the words are read again from the line, and only the part
# of a candidate after the last = is handed to bash.
BASH = r"""# source <(hostler completion bash)
_hostler_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" current candidate kept=""
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    [[ "$current" == *=* && "$COMP_WORDBREAKS" == *=* ]] && kept="${current%"${current##*=}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        if [[ "$candidate" == ":files" ]]; then
            compopt -o default
        else
            COMPREPLY+=("${candidate#"$kept"}")
        fi
    done < <("$1" __complete -- "${words[@]:1}" 2> /dev/null)
}
complete -F _hostler_completion hostler
"""

ZSH = r"""#compdef hostler
# source <(hostler completion zsh), or this as _hostler in a folder of $fpath
_hostler() {
    local -a candidates
    local line help files
    for line in "${(@f)$($words[1] __complete -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
        case $line in
            '') ;;
            :files*) files=1 ;;
            *) help=${line#*$'\t'}; candidates+=("${${line%%$'\t'*}//:/\\:}${help:+:$help}") ;;
        esac
    done
    (( $#candidates )) && _describe hostler candidates
    [[ -n $files ]] && _files
}
if [[ $funcstack[1] == _hostler ]]; then
    _hostler "$@"
else
    compdef _hostler hostler
fi
"""

FISH = r"""# hostler completion fish > ~/.config/fish/completions/hostler.fish
function __hostler_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete -- $words[2..-1] "$current" 2> /dev/null)
        if string match -q ':files*' -- $line
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c hostler -f -a '(__hostler_complete)'
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}


def completion(shell: Annotated[Shell, typer.Argument(help="Whose script.", show_default=False)]) -> None:
    """Print the script that teaches a shell to complete commands, options, kinds, machines and clusters.

    In ~/.bashrc: source <(hostler completion bash); in ~/.zshrc: source <(hostler completion zsh);
    for fish: hostler completion fish > ~/.config/fish/completions/hostler.fish
    """
    say_script(SCRIPTS[shell])


def complete(
    ctx: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(show_default=False)] = None,
) -> None:
    """Say what may take the place of the last word, a line for each candidate: for the scripts."""
    from starter.commands.candidates import candidates

    for value, help in candidates(ctx.find_root().command, words or []):
        say(f"{visible(value)}\t{visible(help)}", keep="\t")
