"""The documentation names what there is, and only that: links, commands, targets, keys, tables, codes."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from flows.__main__ import EXIT_CODES, VERBS, virtscale
from infra.explain import keys
from tasks.profile import Profile
from tasks.records import TABLES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(virtscale [^`]+)`")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
SHELLS = {"sh", "console"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def named() -> str:
    """README and the reference: where everything has to be named."""
    return "".join(
        text_of(page) for page in PAGES if page.parent.name == "reference" or page.name == "README.md"
    )


def shell_lines(page: Path) -> Iterator[str]:
    """What a reader would type: lines of `sh` blocks, and those after `$` in `console` blocks."""
    for language, body in FENCE.findall(text_of(page)):
        for line in body.splitlines() if language in SHELLS else ():
            if language == "sh" or line.startswith("$ "):
                yield line.removeprefix("$ ").partition("  #")[0].strip()


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every virtscale command that the page shows, without `virtscale`."""
    prose = FENCE.sub("", text_of(page))
    shown = [*shell_lines(page), *(command.replace("\n", " ") for command in INLINE.findall(prose))]
    for line in shown:
        words = shlex.split(line.replace("...", ""))
        if words and words[0] in {"virtscale", ".venv/bin/virtscale"}:
            yield words[1:]


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {
        slug(line.lstrip("#")) for line in FENCE.sub("", text_of(page)).splitlines() if line.startswith("#")
    }


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and its arguments."""
    command: click.Command = virtscale
    with click.Context(virtscale, info_name="virtscale") as context:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words[0])
            assert found is not None, f"{words[0]} is not a verb"
            command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_virtscale_command_shown_parses(page: Path) -> None:
    for words in commands(page):
        command, arguments = command_of(words)
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        known |= {"-h", "--help", "--version"}
        used = {word.partition("=")[0] for word in arguments if word.startswith("-")}
        assert used <= known, f"virtscale {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_whole_command_in_a_block_is_accepted(page: Path) -> None:
    """Commands to be typed as they are: values have the right types, nothing required is missing."""
    for line in shell_lines(page):
        words = shlex.split(line)
        if words and words[0] in {"virtscale", ".venv/bin/virtscale"}:
            command, arguments = command_of(words[1:])
            command.make_context(words[1], list(arguments), help_option_names=["-h", "--help"]).close()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = " ".join([*re.findall(r"`([^`\n]+)`", FENCE.sub("", text_of(page))), *shell_lines(page)])
    assert set(TARGET.findall(code)) <= targets


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_named(verb: str) -> None:
    assert f"virtscale {verb}" in named()


@pytest.mark.parametrize("key", [name for name, _ in keys(Profile)])
def test_every_profile_key_is_named(key: str) -> None:
    assert re.search(rf"`{re.escape(key)}[`.]", named())


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_named(table: str) -> None:
    assert f"## {table}\n" in named()


@pytest.mark.parametrize("code", re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE))
def test_every_exit_code_is_named(code: str) -> None:
    assert f"| {code} |" in named()
