"""Puts the mesh together."""

from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import REMOTE_MAIL, REMOTES
from bascule.mesh.identity import Identity
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.ports import Post
from bascule.mesh.records import Membership
from bascule.mesh.service import Mesh
from bascule.mesh.settings import MeshSettings


def make_mesh(kernel: KernelServices, ports: Ports) -> Bridge:
    return Mesh(
        kernel=kernel,
        mail=ports.need(REMOTE_MAIL),
        remotes=ports.need(REMOTES),
        settings=kernel.config.of(MeshSettings),
        make_post=_nats_post,
    ).bridge()


def _nats_post(membership: Membership, identity: Identity) -> Post:
    return NatsPost(
        membership.node,
        identity.keys,
        membership.servers,
        certificate=membership.certificate,
        creds_file=membership.creds_file,
    )
