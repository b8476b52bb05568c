"""The verb completion: a script that lets bash or zsh complete verbs, options, their values and task names.

It is made from the parser itself, so that no verb or option can be missing; only task names are looked up when asked
for, by running ``dinosaur completion names``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from dinosaur_ad.cli._console import EXIT_OK, show, show_page
from dinosaur_ad.cli._parser import Parser, Subparsers, add_store, add_verb, open_store
from dinosaur_ad.cli._settings import apply_settings

_SCRIPT = r"""# Completion for dinosaur, made by: dinosaur completion SHELL
_dinosaur() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
    local verbs="" options="" values="" names="" word="" i=0
    local -a chosen=() store=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word="${COMP_WORDS[i]}"
        case "${chosen[*]} $word" in
            @STEPS@) chosen+=("$word") ;;
        esac
        if [[ "$word" == --store && -n "${COMP_WORDS[i+1]}" ]]; then store=(--store "${COMP_WORDS[i+1]}"); fi
    done
    if ((COMP_CWORD > 3)) && [[ "${COMP_WORDS[COMP_CWORD-2]}" == --store ]]; then
        previous="${chosen[${#chosen[@]}-1]}"
    fi
    case "${chosen[*]}" in
@VERBS@
    esac
    case "${chosen[*]} $previous" in
@VALUES@
    esac
    COMPREPLY=()
    if [[ -n "$names" ]]; then
        while IFS= read -r word; do
            if [[ "$word" == "$current"* ]]; then COMPREPLY+=("$(printf '%q' "$word")"); fi
        done < <(dinosaur completion names "${store[@]}" 2>/dev/null)
    elif [[ -n "$values" ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
    elif [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
    else
        COMPREPLY=($(compgen -W "$verbs" -- "$current"))
    fi
}
complete -o default -F _dinosaur dinosaur
"""
_FOR_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
_HOW = {
    "bash": "source <(dinosaur completion bash)   # in ~/.bashrc",
    "zsh": "source <(dinosaur completion zsh)    # in ~/.zshrc",
}


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "completion",
        completion,
        "Print a script that completes verbs, options and task names in a shell.",
    )
    parser.add_argument("shell", metavar="bash|zsh", choices=("bash", "zsh", "names"), help="; ".join(_HOW.values()))
    add_store(parser)
    parser.set_defaults(settings=())  # only names needs a store


def completion(arguments: argparse.Namespace) -> int:
    """Print the script; ``names`` is what the script itself runs."""
    from dinosaur_ad.cli import make_parser

    if arguments.shell == "names":
        arguments.settings = ("store",)
        apply_settings(arguments)
        show(*open_store(arguments).store.names())
    else:
        show_page((_FOR_ZSH if arguments.shell == "zsh" else "") + script(make_parser()))
    return EXIT_OK


def script(parser: Parser) -> str:
    """The script for all verbs and options of a parser."""
    steps, verbs, values = [], [], []
    for path, each in _walk(parser, ()):
        words = " ".join(path)
        if path:
            steps.append(f'"{" ".join(path[:-1])} {path[-1]}"')
        below = " ".join(_below(each))
        options = " ".join(sorted(option for option in each._option_string_actions if option.startswith("--")))
        verbs.append(f'        "{words}") verbs="{below}"; options="{options}" ;;')
        for action in each._actions:
            if action.metavar in ("NAME", "OLD") and action.dest in ("name", "task"):
                places = action.option_strings or path[-1:]
                values += [f'        "{words} {place}") names=yes ;;' for place in places]
            elif action.choices and not isinstance(action, argparse._SubParsersAction):
                shown = " ".join(str(choice) for choice in action.choices if choice != "names")
                places = action.option_strings or path[-1:]
                values += [f'        "{words} {place}") values="{shown}" ;;' for place in places]
    replaced = _SCRIPT.replace("@STEPS@", "|".join(steps)).replace("@VERBS@", "\n".join(verbs))
    return replaced.replace("@VALUES@", "\n".join(values))


def _walk(parser: Parser, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Parser]]:
    """Every parser with the words that lead to it, the whole command first."""
    yield path, parser
    for name, inner in _below(parser).items():
        yield from _walk(inner, (*path, name))


def _below(parser: Parser) -> dict[str, Parser]:
    """The verbs of a parser."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}
