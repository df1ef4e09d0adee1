"""Client limits by component, as the cluster's objects say them now."""

from collections.abc import Callable

from infra.cluster.port import Cluster
from infra.cluster.virtual.description import Description, Rate
from infra.cluster.virtual.limits import TokenBucket


class ComponentRates:
    """Makes the clients of components whose limits can be tuned; those made earlier follow a change.

    A component is a name of `Rates`; an instance is a node where each node has a client of its own.
    A client without a bucket (a real API server's) has no limit to change.
    """

    def __init__(self, client: Callable[[Rate], Cluster], description: Description) -> None:
        self._make = client
        self._limited = description.limits_on
        self._rates: dict[tuple[str, str], Rate] = {
            (name, ""): rate for name, rate in description.rates if isinstance(rate, Rate)
        }
        self._clients: dict[tuple[str, str], list[tuple[Cluster, int]]] = {}

    def rate(self, component: str, instance: str = "") -> Rate:
        """The limit in force."""
        return self._rates.get((component, instance)) or self._rates[component, ""]

    def client(self, component: str, instance: str = "", replicas: int = 1) -> Cluster:
        """A client with the component's limit, `replicas` times over."""
        rate = self.rate(component, instance)
        made = self._make(Rate(qps=rate.qps * replicas, burst=rate.burst * replicas))
        self._clients.setdefault((component, instance), []).append((made, replicas))
        return made

    def set(self, component: str, rate: Rate, instance: str = "") -> None:
        """Change a limit; the clients start with a full bucket, as a reloaded limiter does."""
        if self.rate(component, instance) == rate:
            return
        self._rates[component, instance] = rate
        for (name, where), clients in self._clients.items():
            if name == component and instance in ("", where):
                for client, replicas in clients:
                    self._reload(client, rate, replicas)

    def _reload(self, client: Cluster, rate: Rate, replicas: int) -> None:
        bucket = getattr(client, "bucket", None)
        if self._limited and isinstance(bucket, TokenBucket):
            bucket.reload(rate.qps * replicas, rate.burst * replicas)
