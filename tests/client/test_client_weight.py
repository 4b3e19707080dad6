"""What a program pays for that imports the client."""

import subprocess
import sys


def test_a_client_loads_the_rows_of_every_bridge_and_neither_policy_nor_tables():
    program = "import sys, bascule.client.verbs; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"bascule.bridge_list", "bascule.desktop.rows"} <= set(loaded)
    heavy = (
        "bascule.kernel.policy",
        "bascule.kernel.journal",
        "bascule.kernel.ledger",
        "bascule.kernel.consent",
        "bascule.kernel.gate",
        "bascule.stores",
    )
    assert [name for name in loaded if name.startswith(heavy)] == []
