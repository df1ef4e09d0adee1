"""The prober of the virtual guests sees what a real one would."""

import asyncio

from infra.guests.port import Answer, Target
from infra.guests.virtual import VirtualGuests
from tests.unit.virtual.conftest import OpenCluster


def test_sshd_that_was_up_before_its_address_was_known_answers_the_first_probe(
    open_cluster: OpenCluster,
) -> None:
    cluster = open_cluster()
    machines, description = cluster.plane.machines, cluster.plane.description
    guests = VirtualGuests(machines, cluster.loop, description.guest, description.probing)

    async def body() -> tuple[int, list[Answer]]:
        guests.arm(["a"])
        machines.power_on("a", "a-root", "worker-000", boots=True)
        await asyncio.sleep(600)
        aimed_ns, found = cluster.loop.now_ns, list[Answer]()
        guests.aim(Target("a", "10.0.0.1"))
        async for batch in guests.answers():
            found += batch
            if len(found) == 3:
                guests.disarm()
        return aimed_ns, found

    aimed_ns, answers = cluster.run(body())
    assert [answer.step for answer in answers] == ["tcp_open", "ssh_banner", "ssh_ready"]
    # nobody looked before: the port may have opened at any time since the batch's release
    assert (answers[0].not_yet_ns, answers[0].seen_ns) == (0, aimed_ns)
