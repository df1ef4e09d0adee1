"""A PostgreSQL of our own for the Prefect server: a socket in a private folder, no port, no password.

Found, not installed: `initdb` on the PATH or where Debian puts it. PostgreSQL refuses to run as root, so for
root it runs as the user `postgres`, with its data in that user's home.
"""

import os
import pwd
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from infra.errors import VirtscaleError
from infra.settings import state_dir

LONGEST_FOLDER = 90
"""A unix socket's path holds 107 bytes; it is FOLDER/.s.PGSQL.5432."""
LIMIT_S = 120


class Postgres(NamedTuple):
    """Where the programs and the data are, and whose they are; `user` empty: this user's."""

    programs: Path
    folder: Path
    user: str = ""

    @property
    def url(self) -> str:
        """What PREFECT_API_DATABASE_CONNECTION_URL has to be."""
        return f"postgresql+asyncpg://virtscale@/postgres?host={quote(str(self.folder), safe='')}"


def find() -> Postgres | None:
    """The PostgreSQL of this user, whether it runs or not; None when this machine cannot run one."""
    programs = _programs()
    if programs is None:
        return None
    if os.geteuid() != 0:
        return _usable(Postgres(programs, state_dir() / "prefect" / "postgres"))
    try:
        home = Path(pwd.getpwnam("postgres").pw_dir)
    except KeyError:
        return None
    mark = sha256(str(state_dir().resolve()).encode()).hexdigest()[:8]
    return _usable(Postgres(programs, home / f"virtscale-{mark}", "postgres")) if home.is_dir() else None


def up(postgres: Postgres) -> None:
    """Make the data folder when there is none, and start the server when it does not run.

    Raises:
        VirtscaleError: it did not start; with its last words.
    """
    if not _has_data(postgres):
        _call(
            postgres, "initdb", "--username=virtscale", "--auth=trust", "--encoding=UTF8", "--no-sync",
            "--locale=C",
        )  # fmt: skip
    if not is_running(postgres):
        options = f"-c listen_addresses='' -c unix_socket_directories='{postgres.folder}'"
        log = str(postgres.folder / "server.log")
        _call(postgres, "pg_ctl", "start", "--wait", "--silent", f"--log={log}", f"--options={options}")


def down(postgres: Postgres) -> bool:
    """Stop the server; False when it did not run."""
    if not _has_data(postgres) or not is_running(postgres):
        return False
    _call(postgres, "pg_ctl", "stop", "--wait", "--silent", "--mode=fast")
    return True


def is_running(postgres: Postgres) -> bool:
    """Whether the server runs."""
    return _has_data(postgres) and _run(postgres, "pg_ctl", "status").returncode == 0


def wipe(postgres: Postgres) -> None:
    """Stop the server and forget its data."""
    down(postgres)
    if _has_data(postgres):
        shutil.rmtree(postgres.folder)


def _has_data(postgres: Postgres) -> bool:
    return (postgres.folder / "PG_VERSION").is_file()


def _usable(postgres: Postgres) -> Postgres | None:
    return postgres if len(str(postgres.folder)) <= LONGEST_FOLDER else None


def _programs() -> Path | None:
    """The newest folder that has initdb and pg_ctl."""
    if (found := shutil.which("initdb")) and shutil.which("pg_ctl"):
        return Path(found).resolve().parent
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4)
    )
    return debian[-1].parent if debian else None


def _run(postgres: Postgres, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(postgres.programs / program), "--pgdata", str(postgres.folder), *arguments]
    return subprocess.run(
        command,
        user=postgres.user or None,
        group=postgres.user or None,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def _call(postgres: Postgres, program: str, *arguments: str) -> None:
    done = _run(postgres, program, *arguments)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise VirtscaleError(f"PostgreSQL: {program} failed: {said or 'no word'} (data {postgres.folder})")
