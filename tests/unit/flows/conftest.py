"""A command line that is called in process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.__main__ import exit_code_of


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def virtscale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call `virtscale` with these arguments, from a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "state"))

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = exit_code_of(arguments)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return call
