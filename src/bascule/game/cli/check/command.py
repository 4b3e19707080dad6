"""`bascule games check GAME`: says which sentences the mod keeps; exit code 1 when one it must keep is broken."""

import argparse
import os
from typing import Any

import msgspec

from bascule.foundation import paths
from bascule.foundation.text import one_line
from bascule.game.cli.check.checks import CHECKS, Check, DoesNotApply
from bascule.game.cli.check.peer import Failed, Seen
from bascule.game.cli.check.starting import Subject
from bascule.game.machine.settings_file import TomlFile
from bascule.game.settings import BadSettings, GameSettings, parse
from bascule.local_client.exits import UNEXPECTED, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json


def run(args: argparse.Namespace) -> int:
    seen = Seen()
    subject = Subject(args.game, _settings(args), seen)
    chosen = _chosen(args.only)
    results: list[dict[str, Any]] = []
    subject.open()
    try:
        for each in chosen:
            results.append(_tried(each, subject))
            if not args.json:
                _show(results[-1])
            if each.name in ("listens", "welcome") and results[-1]["outcome"] == "failed":
                say("nothing else can be tried")
                break
    finally:
        subject.close()
    refused = any(each["outcome"] == "failed" and each["level"] == "must" for each in results)
    also = [*seen.strict, *seen.gabs]
    if args.json:
        show_json({"checks": results, "strict": list(seen.strict), "gabs": list(seen.gabs), "ok": not refused})
    else:
        for title, found in (
            ("a strict bridge would refuse", seen.strict),
            ("GABS and others stumble over", seen.gabs),
        ):
            for text in found:
                show(f"note   {title}: {one_line(text)}")
        show(f"{args.game}: {_summary(results)}")
    return UNEXPECTED if refused or (args.strict and also) else 0


def _tried(each: Check, subject: Subject) -> dict[str, Any]:
    about = {"check": each.name, "level": each.level, "sentence": each.sentence}
    try:
        each.run(subject)
    except DoesNotApply:
        return about | {"outcome": "does not apply"}
    except Failed as failure:
        return about | {"outcome": "failed", "problem": str(failure)}
    return about | {"outcome": "ok"}


def _show(result: dict[str, Any]) -> None:
    if result["outcome"] == "does not apply":
        return
    mark = "ok" if result["outcome"] == "ok" else "FAIL" if result["level"] == "must" else "warn"
    show(f"{mark:<6} {result['check']:<15} {result['sentence']}")
    if "problem" in result:
        show(f"{'':<22} {one_line(result['problem'])}")


def _summary(results: list[dict[str, Any]]) -> str:
    failed = [each for each in results if each["outcome"] == "failed"]
    must = sum(each["level"] == "must" for each in failed)
    kept = sum(each["outcome"] == "ok" for each in results)
    return f"{kept} kept, {must} broken, {len(failed) - must} recommendations not followed"


def _chosen(names: list[str]) -> list[Check]:
    known = {each.name: each for each in CHECKS}
    for name in names:
        if name not in known:
            raise WrongUsage(f"there is no check {name!r}", f"there are: {', '.join(known)}")
    return [known[name] for name in names] or CHECKS


def _settings(args: argparse.Namespace) -> GameSettings:
    given: dict[str, Any] = {} if args.transport is None else {"transport": args.transport}
    if args.port is not None:
        if args.token_file is None:
            raise WrongUsage("--port needs --token-file: the 0600 file with the game's token")
        return GameSettings(address=str(args.port), token_file=args.token_file, **given)
    if args.command:
        return GameSettings(command=args.command[0], args=tuple(args.command[1:]), **given)
    path = os.path.join(paths.config_dir(), "games.toml")
    _, text = TomlFile(path).read()
    try:
        games = {} if text is None else parse(text)
    except BadSettings as bad:
        raise WrongUsage(str(bad), f"mend {path}") from None
    if args.game not in games:
        known = ", ".join(sorted(games)) or "none"
        raise WrongUsage(f"games.toml names no game {args.game!r}", f"it names: {known}; or give a command with --run")
    return msgspec.structs.replace(games[args.game], **given)
