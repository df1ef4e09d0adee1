"""`python -m flows.reference`: docs/reference and the roles' files from the code; `--check` only looks."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
import pyarrow as pa
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from flows.__main__ import EXIT_CODES, VERBS, virtscale
from flows.role_files import FOLDER as ROLE_FOLDER
from flows.role_files import files as role_files
from infra import errors
from infra.explain import keys
from tasks.knobs import Knob, catalogue
from tasks.profile import Profile
from tasks.records import SCHEMA_VERSION, TABLES

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
GENERATED = "<!-- written by `make docs` (flows/reference.py); do not edit -->\n"
TYPES = {
    Any: "any",
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    type(None): "nothing",
}
WIDTH = 96


def profile_page() -> str:
    """Every key of a profile."""
    rows = [_key_row(name, field) for name, field in keys(Profile) if not _is_table(field.annotation)]
    head = (
        "# Profile\n\nA profile is one TOML file. A key that is left out has the default; "
        "`--set a.b=value` changes one. `virtscale profile new FILE.toml` writes a whole one.\n\n"
    )
    return head + _table(("key", "type", "default", "limits", "meaning"), rows)


def _key_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    return (f"`{name}`", _type(field.annotation), _default(field), _limits(field), field.description or "")


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type(annotation: Any) -> str:
    if annotation in TYPES:
        return TYPES[annotation]
    arguments = get_args(annotation)
    if all(isinstance(each, str) for each in arguments):
        return " or ".join(f"`{each}`" for each in arguments)
    if getattr(annotation, "__origin__", None) is tuple:
        inner = arguments[0]
        return (
            "list of stages" if get_args(inner) and isinstance(get_args(inner)[0], str) else "list of sizes"
        )
    return " or ".join(dict.fromkeys(_type(each) for each in arguments if not _is_metadata(each)))


def _is_metadata(argument: Any) -> bool:
    return isinstance(argument, FieldInfo)


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None:
        return "left out"
    if isinstance(value, tuple):
        return f"`[{', '.join(str(each) for each in value)}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else '`""`'


def _limits(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [
        f"{sign} {getattr(each, name):g}"
        for each in field.metadata
        for name, sign in signs.items()
        if getattr(each, name, None) is not None
    ]
    return ", ".join(found)


def tables_page() -> str:
    """Every stored table with its columns."""
    head = (
        f"# Tables\n\nParquet, schema version {SCHEMA_VERSION}. `run_id` is in the path of every part "
        "(`run_id=<id>`). Columns `X_s` count seconds from the batch's release on the observer's clock, "
        "`X_error_s` is the width of the interval in which the step was observed, null is what was not "
        "observed; `*_at` is UTC wall time, never subtracted.\n"
    )
    return head + "".join(f"\n## {name}\n\n{_schema(schema)}" for name, schema in TABLES.items())


def _schema(schema: pa.Schema) -> str:
    rows = [(f"`{field.name}`", str(field.type), "" if field.nullable else "never null") for field in schema]
    return _table(("column", "type", "null"), rows)


def knobs_page() -> str:
    """Every knob of the catalogue."""
    head = (
        "# Knobs\n\nWhat stage tuning looks at, and sets when told to: `[tuning.knobs]` of a profile, or "
        "`--set tuning.knobs.NAME=VALUE`. The catalogue is `deployments/knobs/*.toml`, one file per object; "
        "*advice* is what profile `tuned` sets or what we would set. A knob is verified where it acts: "
        "a field that was accepted is not yet one that works.\n\n"
    )
    return head + "\n".join(_knob(knob) for knob in catalogue().values())


def _knob(knob: Knob) -> str:
    target = knob.target
    facts = [
        ("sets", f"`{'`, `'.join(knob.set)}` of {target.kind} {target.name}" if target else knob.by_hand),
        ("value", _knob_value(knob)),
        ("default", knob.default),
        ("why", knob.why),
        ("source", knob.source),
        ("felt as", knob.disturbance),
        ("verified by", knob.verify),
        ("reverted by", knob.irreversible or knob.revert),
        *(("trap", trap) for trap in (*((knob.warning,) if knob.warning else ()), *knob.traps)),
    ]
    return f"## {knob.name}\n\n" + "".join(f"- {name}: {text}\n" for name, text in facts if text)


def _knob_value(knob: Knob) -> str:
    if knob.target is None:
        return f"by hand; advice: {knob.advice}"
    kind = knob.type if isinstance(knob.type, str) else ", ".join(knob.type)
    choices = f" ({', '.join(knob.choices)})" if knob.choices else ""
    return f"{kind}{choices}; advice: `{json.dumps(knob.advice)}`"


def cli_page() -> str:
    """The help of every verb."""
    with click.Context(virtscale, info_name="virtscale", help_option_names=["-h", "--help"]) as context:
        texts = [
            text for name in VERBS for text in _helps(context, name, virtscale.get_command(context, name))
        ]
    return "# Command line\n" + "".join(f"\n## {title}\n\n```text\n{text}\n```\n" for title, text in texts)


def _helps(parent: click.Context, name: str, command: click.Command | None) -> Iterator[tuple[str, str]]:
    if command is None:
        return
    with click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH) as context:
        yield context.command_path, command.get_help(context)
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                yield from _helps(context, each, command.get_command(context, each))


def exit_codes_page() -> str:
    """Exit codes, and the errors that lead to each."""
    codes = [line.strip().partition(" ") for line in EXIT_CODES.splitlines()[2:]]
    head = "# Exit codes\n\nIf several apply: 2, then 130 or 143, then 1, then 3, then 4.\n\n"
    rows = [(code, meaning.strip()) for code, _, meaning in codes]
    return head + _table(("code", "meaning"), rows) + "\n## Errors\n\n" + _error_table()


def _error_table() -> str:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    rows = [
        (f"`{each.__name__}`", str(each.exit_code), (each.__doc__ or "").splitlines()[0])
        for each in found
        if issubclass(each, errors.VirtscaleError)
    ]
    return _table(("error", "exit code", "meaning"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


PAGES = {
    "profile.md": profile_page,
    "tables.md": tables_page,
    "knobs.md": knobs_page,
    "cli.md": cli_page,
    "exit-codes.md": exit_codes_page,
}


def texts() -> dict[Path, str]:
    """Every file that is written from the code."""
    pages = {FOLDER / name: GENERATED + make() for name, make in PAGES.items()}
    return pages | {ROLE_FOLDER / name: text for name, text in role_files().items()}


def stale_pages() -> list[str]:
    """Files that are missing or say something else than the code."""
    return [path.name for path, text in texts().items() if not path.is_file() or path.read_text() != text]


def write_pages() -> None:
    """Write every file."""
    for path, text in texts().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` say which are stale."""
    if "--check" not in arguments:
        write_pages()
        return 0
    stale = stale_pages()
    if stale:
        print(f"{', '.join(stale)} not up to date; run make docs", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
