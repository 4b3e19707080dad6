"""Puts the mesh together."""

import os

from bascule.daemon.ports import STATE_DIR
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import REMOTE_MAIL, REMOTES
from bascule.mesh.machine.nats_machine import NatsMachine
from bascule.mesh.service import Mesh
from bascule.mesh.settings import MeshSettings

# In the state directory: what our own server keeps.
_FOLDER = "mesh"


def make_mesh(kernel: KernelServices, ports: Ports) -> Bridge:
    folder = os.path.join(ports.need(STATE_DIR), _FOLDER)
    return Mesh(
        kernel=kernel,
        mail=ports.need(REMOTE_MAIL),
        remotes=ports.need(REMOTES),
        settings=kernel.config.of(MeshSettings),
        machine=NatsMachine(folder, kernel.gate.call_log.task_failed),
    ).bridge()
