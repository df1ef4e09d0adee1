"""The Prefect server's application as we start it: Prefect's own, with short pauses for garbage.

What it is made of stays until it ends. Looked through for garbage with everything else, every half a minute,
those 300,000 objects cost 0.2 s of CPU in which nobody is answered, and more where the machine is shared.
"""

import gc

from starlette.applications import Starlette

YOUNG = 10_000
"""So many more objects are made than gone before the youngest are looked through; Python's own: 700."""


def create_app() -> Starlette:
    """Prefect's application; this process's garbage collector no longer sees what is there so far."""
    # Imported here: Prefect reads its settings at import.
    from prefect.server.api.server import create_app as prefects

    app = prefects()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    return app
