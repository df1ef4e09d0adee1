"""One request, taken apart, and what it is answered with. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import yaml

from infra.cluster.port import Object, Scope
from infra.served import protobuf
from infra.served.paths import Target
from infra.served.status import bad_request


class Call(NamedTuple):
    """A request on a target: what its path, query, headers and body say."""

    method: str
    target: Target
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be kept."""
        return self.query.get("dryRun") == "All"

    @property
    def scope(self) -> Scope:
        """What a list or watch covers: a name in the path is a field selector."""
        kind, namespace, name, _ = self.target
        fields = self.query.get("fieldSelector", "")
        if name:
            fields = f"metadata.name={name}" + (f",{fields}" if fields else "")
        return Scope(kind, namespace, self.query.get("labelSelector", ""), fields)

    @property
    def table(self) -> str:
        """What a row of the table asked for carries; empty when no table is asked for."""
        return self.query.get("includeObject", "Metadata") if "as=Table" in self.accept else ""

    def number(self, name: str) -> int:
        """A whole number of the query; 0 when it is left out."""
        text = self.query.get(name, "") or "0"
        if not text.isdigit():
            raise bad_request(f"{name}={text}: a whole number is needed")
        return int(text)

    def decoded(self) -> Any:
        """The body as JSON, YAML or protobuf; None when it is empty."""
        if not self.body:
            return None
        if self.body.startswith(protobuf.MAGIC):
            return protobuf.decoded(self.body)
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            if "yaml" not in self.content_type:
                raise bad_request(f"the request's body is no JSON: {error}") from error
        try:
            return yaml.safe_load(self.body)
        except yaml.YAMLError as error:
            raise bad_request("the request's body is neither JSON nor YAML") from error

    def options(self) -> dict[str, Any]:
        """The body as a map, empty without one."""
        found = self.decoded()
        if found is not None and not isinstance(found, dict):
            raise bad_request("the request's body is no object")
        return found or {}

    def details(self) -> Object:
        """How a Status names what the call is about."""
        kind = self.target.kind
        found = {"name": self.target.name, "group": kind.group, "kind": kind.plural}
        return {key: value for key, value in found.items() if value}


class Answer(NamedTuple):
    """HTTP code and body."""

    code: int
    body: Object
