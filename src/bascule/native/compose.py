"""Puts the native bridge together."""

from bascule.foundation import paths
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import NATIVE_RUNS
from bascule.native.machine.local import LocalMachine
from bascule.native.service import Native
from bascule.native.settings import NativeSettings


def make_native(kernel: KernelServices, ports: Ports) -> Bridge:
    settings = kernel.config.of(NativeSettings)
    return Native(kernel, ports.need(NATIVE_RUNS), LocalMachine(paths.home()), settings).bridge()
