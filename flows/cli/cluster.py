"""`virtscale cluster`: clusters to measure that are not somebody's production."""

import click


@click.group()
def cluster() -> None:
    """Bring up or drive a cluster for virtscale to measure."""
