"""The sandbox around commands: found out by making one, as the daemon would."""

from typing import TYPE_CHECKING

from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn

if TYPE_CHECKING:
    from bascule.workspace.machine.sandbox.launch import Tools

NAMES = {"memory": "memory", "pids": "processes", "cpu": "processor shares"}


def check_sandbox(_: Patient) -> Verdict:
    from bascule.workspace.machine.sandbox.probe import bubblewrap_problem, find_tools, version

    tools = find_tools()
    problem = bubblewrap_problem(tools)
    if problem is not None:
        what, fix = problem.split("; ", 1)
        return warn(f"no command can run in a workspace: {what}", fix)
    return ok(f"bubblewrap {version(tools)}, workspaces bound {_how(tools)}; spawner on {tools.python}")


def _how(tools: "Tools") -> str:
    return "by descriptor" if tools.bind_by_descriptor else "by name, compared afterwards"


def check_supervisor(_: Patient) -> Verdict:
    from bascule.workspace.machine.sandbox.kernel import supervision_problem

    problem = supervision_problem()
    if problem is not None:
        fix = "deny rules then hold for what can be read before a command runs; a newer kernel enforces them"
        return warn(f"programs are not supervised as they are executed: {problem}", fix)
    return ok("deny rules hold when programs are executed (seccomp user notification)")


def check_limits(_: Patient) -> Verdict:
    from bascule.workspace.machine.sandbox.groups import find_groups
    from bascule.workspace.machine.sandbox.limits import MIB, SandboxLimits

    limits = SandboxLimits()
    groups = find_groups(limits)
    kept = ", ".join(NAMES[name] for name in NAMES if name in groups.kept)
    most = f"{limits.memory_bytes // MIB:,} MiB and {limits.processes} processes per command"
    if {"memory", "pids"} <= groups.kept:
        return ok(f"{most}, by control groups (version {groups.version}: {kept})")
    return info(f"{most}, by resource limits and a look four times a second: no control groups are ours to use here")


CHECKS: tuple[Check, ...] = (
    Check("sandbox", check_sandbox),
    Check("exec supervisor", check_supervisor),
    Check("command limits", check_limits),
)
