"""The mesh behind its method rows: puts the parts together."""

from functools import partial

from bascule.kernel.bridge import Bridge, Gauge, KernelServices
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import RemoteMail, Remotes
from bascule.kernel.retention import GcItem
from bascule.mesh.declared import MeshDeclared
from bascule.mesh.machine_ports import Machine
from bascule.mesh.members import make_members
from bascule.mesh.roster import REVOKED_KEY
from bascule.mesh.settings import MeshSettings
from bascule.mesh.traffic import MeshTraffic


class Mesh:
    def __init__(
        self,
        *,
        kernel: KernelServices,
        mail: RemoteMail,
        remotes: Remotes,
        settings: MeshSettings,
        machine: Machine,
    ) -> None:
        self.traffic = MeshTraffic(kernel=kernel, mail=mail, remotes=remotes, settings=settings)
        self.members = make_members(kernel, self.traffic.state.membership, machine, self.traffic)
        self.traffic.cards = self.members.roster
        self.traffic.on_halt = self.members.news.twin_seen
        self.traffic.on_seen = self.members.news.node_seen
        self.traffic.on_revocations = partial(self.members.news.take_card, REVOKED_KEY)

    def bridge(self) -> Bridge:
        return Bridge(
            declared=MeshDeclared(),
            service=self,
            methods=[*self.traffic.methods(), *self.members.methods()],
            gauges=[
                Gauge(
                    "bascule_mesh_outbox",
                    "Items not confirmed by other machines.",
                    lambda: len(self.traffic.state.out.rows),
                ),
            ],
            recover=self.members.recover,
            open=self.open,
            sweep=self.sweep,
            close=self.members.close,
        )

    async def open(self) -> None:
        self.members.open()

    def sweep(self, tx: Transaction) -> list[GcItem]:
        return [*self.members.sweep(tx), *self.traffic.sweep(tx)]
