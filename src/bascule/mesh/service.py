"""The mesh behind its method rows: puts the parts together."""

from bascule.kernel.bridge import Bridge, Gauge, KernelServices
from bascule.kernel.ports import RemoteMail, Remotes
from bascule.mesh.declared import MeshDeclared
from bascule.mesh.settings import MeshSettings
from bascule.mesh.traffic import MeshTraffic


class Mesh:
    def __init__(self, *, kernel: KernelServices, mail: RemoteMail, remotes: Remotes, settings: MeshSettings) -> None:
        self.traffic = MeshTraffic(kernel=kernel, mail=mail, remotes=remotes, settings=settings)

    def bridge(self) -> Bridge:
        return Bridge(
            declared=MeshDeclared(),
            service=self,
            methods=self.traffic.methods(),
            gauges=[
                Gauge(
                    "bascule_mesh_outbox",
                    "Items not confirmed by other machines.",
                    lambda: len(self.traffic.state.out.rows),
                ),
            ],
            sweep=self.traffic.sweep,
        )
