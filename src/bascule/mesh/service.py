"""The mesh bridge behind its method rows."""

from bascule.kernel.bridge import Bridge
from bascule.mesh.declared import MeshDeclared
from bascule.mesh.membership_methods import MembershipMethods


class Mesh:
    def __init__(self, membership: MembershipMethods) -> None:
        self.membership = membership

    def bridge(self) -> Bridge:
        return Bridge(
            declared=MeshDeclared(),
            service=self,
            methods=[*self.membership.methods()],
            open=self.open,
            sweep=self.membership.sweep,
            close=self.close,
        )

    async def open(self) -> None:
        self.membership.open()

    async def close(self) -> None:
        await self.membership.close()
