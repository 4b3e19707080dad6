"""Which test files `make quick` runs: those that need no process, no display, no disk fault and no npm tool.

Every file has its place: below a directory that is named here, or by its own name; the longest name counts. A test of a
quick file that starts a process fails (see conftest.py), so that the quick ones stay quick.
"""

import sys
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parent

QUICK = frozenset(
    [
        "a2a_edge/test_a2a_cards.py",
        "a2a_edge/test_a2a_gate.py",
        "a2a_edge/test_a2a_settings.py",
        "approval",
        "audit",
        "bridges",
        "contract",
        "identity",
        "mesh/test_mesh_before_disk.py",
        "mesh/test_mesh_directory.py",
        "mesh/test_mesh_messages.py",
        "mesh/test_mesh_outsiders.py",
        "mesh/test_mesh_promises.py",
        "mesh/test_mesh_sessions.py",
        "mesh/test_mesh_simulation.py",
        "policy",
        "protocols",
        "stores",
        "testing",
        "transports",
        "wire",
        "test_backoff.py",
        "test_call_gate.py",
        "test_call_gate_answers.py",
        "test_coverage_table.py",
        "test_bridge_list.py",
        "test_deferred.py",
        "test_descriptors.py",
        "test_quick.py",
        "test_fair_share.py",
        "test_timers.py",
        "test_tasks.py",
        "adapters/test_desktop_places.py",
        "adapters/test_files_contract.py",
        "adapters/test_scratch.py",
        "adapters/sandbox/test_filters.py",
        "cli/test_desktop_words.py",
        "cli/test_doctor_desktop.py",
        "cli/test_run_shown.py",
        "cli/test_setup_blocks.py",
        "cli/test_setup_json_text.py",
        "cli/test_setup_toml_text.py",
        "client/test_client_desktop.py",
        "client/test_feeds.py",
        "client/test_run_feed.py",
        "client/test_verbs.py",
        "conformance/test_requirements_table.py",
        "console/test_console_proofs.py",
        "console/test_console_sessions.py",
        "daemon/test_config.py",
        "daemon/test_metrics_history.py",
        "daemon/test_token_files.py",
        "desktop_host/test_host_parts.py",
        "desktop_host/test_wayland_wire.py",
        "faults/test_linearize.py",
        "game/test_game_bounds.py",
        "game/test_game_conversations.py",
        "game/test_game_pump.py",
        "native/test_native_hooks.py",
        "native/test_session_states.py",
        "game/test_game_sessions.py",
        "helpers/test_doors_answers.py",
        "helpers/test_doors_choice.py",
        "helpers/test_doors_http.py",
        "helpers/test_doors_link.py",
        "helpers/test_doors_retry.py",
        "helpers/test_doors_values.py",
        "helpers/test_helper_bridgectl.py",
        "helpers/test_helper_terminal.py",
        "mesh/test_admissions.py",
        "mesh/test_join_code.py",
        "mesh/test_membership.py",
        "mesh/test_membership_methods.py",
        "mesh/test_mesh_doctor.py",
        "mesh_live/test_live_history.py",
        "mesh_nats/test_nats_slices.py",
        "mesh_nats/test_nats_wire.py",
        "shim/test_shim_identity.py",
        "shim/test_shim_odd_daemon.py",
        "tools",
        "web/test_blob_answers.py",
        "web/test_openapi_document.py",
        "web/test_route_table.py",
        "wrap/test_wrap_keyboard.py",
        "wrap/test_wrap_moments.py",
        "wrap/test_wrap_output.py",
        "wrap/test_wrap_profiles.py",
        "wrap/test_wrap_screen.py",
    ]
)
SLOW = frozenset(
    [
        "a2a_edge",
        "adapters",
        "cli",
        "client",
        "clients",
        "conformance",
        "console",
        "daemon",
        "desktop_daemon",
        "desktop_host",
        "e2e",
        "faults",
        "fuzz",
        "game",
        "helpers",
        "load",
        "mcp",
        "mesh",
        "mesh_live",
        "mesh_nats",
        "native",
        "shim",
        "web",
        "wrap",
        "test_bench.py",
        "test_cast.py",
        "test_docs.py",
        "test_docs_commands.py",
        "test_fresh.py",
        "test_house.py",
        "test_paths.py",
        "test_setup.py",
        "test_text.py",
        "test_tutorial.py",
        "test_wheels.py",
        "test_walks.py",
        "approval/test_announce.py",
        "approval/test_console_rows.py",
        "approval/test_live.py",
        "approval/test_live_stop.py",
        "identity/test_identity_read_from_tty.py",
        "policy/test_shell_beside_real.py",
        "policy/test_shell_corpora.py",
        "policy/test_shell_soup.py",
        "policy/test_shell_words.py",
        "stores/test_sqlite.py",
        "transports/test_peercred.py",
    ]
)

# What Python announces before it makes a process, whichever way.
_STARTS = frozenset(
    ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
)


def is_quick(file: Path) -> bool:
    """Raises LookupError for a file that has no place yet."""
    place = file.relative_to(TESTS)
    for each in (place, *place.parents):
        if (name := str(each)) in QUICK or name in SLOW:
            return name in QUICK
    raise LookupError(f"tests/{place} has no place in tests/quick.py: add it, or its directory, to QUICK or SLOW")


def watch_processes(forbidden: Callable[[], bool], fail: Callable[[str], object]) -> None:
    """Call `fail` where this process would start another while that is forbidden. There is no way to end this."""

    def hook(event: str, _: object) -> None:
        if event in _STARTS and forbidden():
            fail("a test of a quick file starts a process; move it, or name the file under SLOW in tests/quick.py")

    sys.addaudithook(hook)
