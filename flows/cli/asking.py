"""Asking a person whether the cluster may be changed."""

import sys

import click

from flows.approval import Ask, granted, nobody


def asker(*, yes: bool) -> Ask:
    """Whom tuning asks: nobody with --yes, the person at the terminal, else it is refused."""
    if yes:
        return granted
    return ask if sys.stdin.isatty() else nobody


def ask(lines: list[str]) -> bool:
    """Show what would change, and let a person decide."""
    for line in lines:
        click.echo(f"  {line}", err=True)
    return click.confirm("Change the cluster so?", err=True)
