"""PURE. Vega, Vega-Lite and vega-embed as one script, made by vl-convert from its own copy: no network.

Making it takes seconds, so it is kept beside Python's own compiled files, under the versions that it
was made of; where that folder cannot be written it is made anew by each process.
"""

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

import vl_convert

from tasks.charts.pictures import VEGA_LITE

_FOLDER = Path(__file__).parent / "__pycache__"


@cache
def charting_bundle() -> str:
    """The script; nothing in it can end the script element that it is put into."""
    kept = _FOLDER / f"vega-lite-{VEGA_LITE}-vl-convert-{version('vl-convert-python')}.js"
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    made = _made()
    with suppress(OSError):
        _keep(kept, made)
    return made


def _made() -> str:
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE))
    return script.replace("</script", "<\\/script")


def _keep(path: Path, text: str) -> None:
    """Written whole or not at all: another process may be reading."""
    path.parent.mkdir(exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, encoding="utf-8", delete=False) as part:
        part.write(text)
    Path(part.name).replace(path)
