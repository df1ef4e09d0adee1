"""`virtscale`: the verbs are loaded when they are used, so that none pays for another's libraries."""

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from infra.errors import VirtscaleError

VERBS = {
    "plan": "plan",
    "run": "run",
    "report": "report",
    "compare": "compare",
    "trend": "trend",
    "runs": "runs",
    "clean": "clean",
    "revert": "revert",
    "profile": "profiles",
    "doctor": "doctor",
    "cluster": "cluster",
    "roles": "roles",
    "serve": "serve",
    "prefect": "prefect",
}
"""Verb to module of `flows.cli`; the command has the verb's name there."""

INTERRUPTED = 130


class Verbs(click.Group):
    """The verbs in the order of use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one verb."""
        if cmd_name not in VERBS:
            return None
        command = getattr(import_module(f"flows.cli.{VERBS[cmd_name]}"), cmd_name)
        return command if isinstance(command, click.Command) else None


EXIT_CODES = """\b
Exit codes:
  0    fine
  1    a stage could not finish
  2    refused before anything changed: usage, profile, preflight
  3    finished, but the verdict is degraded or invalid
  4    a regression against the baseline
  130  interrupted
  143  told to end (SIGTERM), and ended in order"""


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.version_option(package_name="virtscale")
def virtscale() -> None:
    """Measure how an OpenShift Virtualization cluster behaves as its number of virtual machines grows."""


def exit_code_of(arguments: Sequence[str]) -> int:
    """Run one command; a user's mistake is one line on stderr and an exit code, never a stack trace."""
    # What the Kubernetes client would print by itself is in our own errors.
    logging.getLogger("kubernetes").addHandler(logging.NullHandler())
    try:
        code = virtscale.main(list(arguments), prog_name="virtscale", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f" ({context.command_path} --help)" if context else ""
        click.echo(f"error: {error.format_message().rstrip('.')}{where}", err=True)
        return 2
    except VirtscaleError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; nothing is to be said to it, not even when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def main() -> None:
    """The console script."""
    sys.exit(exit_code_of(sys.argv[1:]))


if __name__ == "__main__":
    main()
