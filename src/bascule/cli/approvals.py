"""`bascule approvals`: what agents ask a person for, and the person's answers, from any terminal."""

import argparse
import os
import queue
import sys
import threading
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bascule.cli import questions
from bascule.cli.console_pages import open_page
from bascule.cli.opening import open_file
from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.cli.tty import ask_on_tty
from bascule.client.sync import SyncClient
from bascule.foundation.errors import BasculeError, Conflict, NotFound
from bascule.foundation.text import one_line, rows, visible
from bascule.kernel.call import PERSON
from bascule.kernel.limits import MAX_RULE_MINUTES
from bascule.local_client.exits import USAGE, DoorError
from bascule.programs.helpers.terminal import say, show, show_json, show_table

DEFAULT_MINUTES = 10
_RULE = "─" * 72
# Of what goes on in another row: none of our own names begin there.
_INDENT = " " * 12


class Asked(NamedTuple):
    """A question in words, without its words."""

    ticket_id: str
    sender: str


# An approval as it comes and is answered, or a question in words; None at the end.
News: TypeAlias = "dict[str, Any] | Asked | None"
# More than a person can have before them; then the daemon's own buffers fill, and say so.
MAX_NEWS = 1_000


class Choice(NamedTuple):
    """What the person says to one question."""

    decision: str
    scope: str = "once"
    offer: int | None = None
    minutes: int = DEFAULT_MINUTES
    reason: str | None = None

    def params(self, approval_id: str) -> dict[str, Any]:
        params: dict[str, Any] = {"approvalId": approval_id, "decision": self.decision}
        if self.decision == "approved":
            params |= {"scope": self.scope, "minutes": self.minutes}
        if self.offer is not None:
            params["offer"] = self.offer
        if self.reason:
            params["reason"] = self.reason
        return params


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    approvals = commands.add_parser(
        "approvals",
        help="see what agents ask for, and answer",
        description="Where the policy says `ask`, an agent's call waits for you (15 minutes, then it is dropped). "
        "Looking needs nothing; answering needs the passphrase, typed on your terminal. An approval is for one call, "
        "within 10 minutes; or for the whole run; or for a rule that is printed in full, for at most 8 hours.",
    )
    add_state_dir(approvals)
    add_json(approvals)
    approvals.set_defaults(run=run_list, all=False)
    verbs = approvals.add_subparsers(metavar="VERB")
    listed = verbs.add_parser("list", help="what waits for you (the default)")
    listed.add_argument("--all", action="store_true", help="also what was answered in the last 24 hours")
    listed.set_defaults(run=run_list)
    shown = verbs.add_parser("show", help="one question with everything it is about")
    shown.set_defaults(run=run_show)
    yes = verbs.add_parser("approve", help="say yes")
    yes.set_defaults(run=run_approve)
    how = yes.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="this one call")
    how.add_argument("--run", dest="for_run", action="store_true", help="everything that the same run asks")
    how.add_argument("--rule", type=int, metavar="N", help="the N-th rule that `show` offers")
    yes.add_argument(
        "--minutes",
        type=_minutes,
        default=DEFAULT_MINUTES,
        metavar="M",
        help=f"how long --rule holds (default 10, at most {MAX_RULE_MINUTES})",
    )
    no = verbs.add_parser("deny", help="say no")
    no.set_defaults(run=run_deny)
    no.add_argument("--reason", metavar="TEXT", help="shown to the caller that asked")
    opened = verbs.add_parser("open", help="one question in the console, in your browser")
    opened.set_defaults(run=run_open)
    answer = verbs.add_parser("answer", help="answer what an agent asks you in words; it approves nothing")
    answer.set_defaults(run=run_answer)
    answer.add_argument("ticket", metavar="TICKET", help="its id, or enough of its end")
    answer.add_argument("text", metavar="TEXT", nargs="?", help="your answer; else it is asked for on your terminal")
    watched = verbs.add_parser("watch", help="wait for questions and answer them as they come")
    watched.set_defaults(run=run_watch)
    for verb in (shown, opened, yes, no):
        verb.add_argument("approval", metavar="ID", help="its id, or enough of its beginning")
    for verb in (shown, yes, watched):
        verb.add_argument("--open", action="store_true", help="also open its picture, if it has one")
    for verb in (listed, shown, opened, yes, no, answer, watched):
        add_state_dir(verb, below=True)
        add_json(verb, below=True)


def _minutes(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(MAX_RULE_MINUTES)) or not 1 <= int(text) <= MAX_RULE_MINUTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes from 1 to {MAX_RULE_MINUTES}")
    return int(text)


# -- looking --------------------------------------------------------------------------------------


def run_list(args: argparse.Namespace) -> int:
    with connect(args) as client:
        views = client.call("approvals.list", {"all": args.all})
        asked = [] if args.json else questions.waiting(client)
    if args.json:
        show_json(views)
        return 0
    if not views and not asked:
        show("nothing waits for you")
        return 0
    if views:
        _show_views(views)
    if asked:
        listed = [(each["ticketId"], each["from"], each["createdAt"]) for each in asked]
        show_table(("QUESTION", "WHO", "ASKED"), listed)
        say("read and answer: bascule approvals answer QUESTION")
    return 0


def _show_views(views: list[dict[str, Any]]) -> None:
    headings = ("ID", "STATE", "WHO", "WHAT", "ASKED")
    show_table(
        headings,
        [(view["approvalId"], view["state"], view["principal"], view["summary"], view["askedAt"]) for view in views],
    )
    if any(view["state"] == "pending" for view in views):
        say("look: bascule approvals show ID    answer: bascule approvals approve ID | deny ID")


def run_show(args: argparse.Namespace) -> int:
    with connect(args) as client:
        view = client.call("approvals.show", {"approvalId": find(client, args.approval)})
    if args.json:
        show_json(view)
    else:
        show(render_question(view, terminal_columns()))
    _open_picture(args, view)
    return 0


def run_open(args: argparse.Namespace) -> int:
    with connect(args) as client:
        return open_page(client, "approvals", find(client, args.approval))


def find(client: SyncClient, text: str) -> str:
    """The id that begins like this; one, or none."""
    views = client.call("approvals.list", {"all": True, "limit": 1_000})
    ids = [str(view["approvalId"]) for view in views]
    if text in ids:
        return text
    found = [each for each in ids if each.removeprefix("apr_").startswith(text.removeprefix("apr_"))]
    if len(found) == 1:
        return found[0]
    if found:
        raise Conflict(f"{len(found)} approvals begin with {text}", hint="give more of the id")
    raise NotFound(f"no approval {text}", hint="`bascule approvals list --all` shows those that are still kept")


def render_question(view: dict[str, Any], columns: int | None = None) -> str:
    """Everything about one question. Rows of the preview begin with a bar, so that none can pass for ours.

    `columns` are those of the terminal, if it is shown on one.
    """
    facts = [
        ("who", view["principal"]),
        ("what", view["method"]),
        ("why", f"{view['reason']} (rule {view['rule']})"),
        ("instead", view.get("suggestion")),
        ("run", " ".join(filter(None, (view.get("runId"), view.get("operationId")))) or None),
        ("picture", view.get("picture")),
        ("digest", _digest(view["digest"])),
        ("asked", f"{view['askedAt']}, {_until(view)}"),
        ("waiting", _waiting(view)),
        ("answered", view.get("decidedAt")),
        ("because", view.get("decidedReason")),
    ]
    lines = [f"{view['approvalId']}  {view['state']}"]
    for name, value in facts:
        if value:
            lines += _rows(f"  {name:<9} ", one_line(str(value)), _INDENT, columns)
    if view.get("preview"):
        preview = visible(view["preview"], already_visible=True).split("\n")
        lines += [_RULE, *(row for line in preview for row in _rows("│ ", line, "│↪", columns)), _RULE]
    for offer in view.get("offers", ()):
        title, text = one_line(offer["title"], already_visible=True), one_line(offer["text"], already_visible=True)
        lines += _rows(f"  rule {offer['number']}: ", f"{title}, for a while", _INDENT, columns)
        lines += _rows(_INDENT, text, _INDENT, columns)
    return "\n".join(lines)


def _rows(first: str, line: str, others: str, columns: int | None) -> list[str]:
    if columns is None:
        return [first + line]
    # `│` counts for two, as it does in the terminals of some languages.
    begin, *rest = rows(line, max(1, columns - max(len(first), len(others)) - 2))
    return [first + begin, *(others + row for row in rest)]


def terminal_columns() -> int | None:
    """Of the terminal that stdout is; None when it is none."""
    try:
        return os.get_terminal_size(1).columns or None
    except OSError:
        return None


def _open_picture(args: argparse.Namespace, view: dict[str, Any]) -> None:
    picture = view.get("picture")
    if not args.open or picture is None:
        return
    problem = open_file(picture)
    if problem is not None:
        say(f"bascule: the picture is not opened: {problem}; it is {picture}")


def _digest(digest: str) -> str:
    short = digest[:16]
    return " ".join(short[at : at + 4] for at in range(0, len(short), 4))


def _until(view: dict[str, Any]) -> str:
    word = {"pending": "expires", "approved": "the call must come before"}.get(view["state"], "was good until")
    return f"{word} {view['expiresAt']}"


def _waiting(view: dict[str, Any]) -> str | None:
    if view["state"] != "pending":
        return None
    if view.get("runId"):
        return "the run, which goes on by itself"
    count = view.get("waiting", 0)
    return f"{count} caller{'s' if count != 1 else ''} now" if count else "nobody now; the next identical call uses it"


# -- answering ------------------------------------------------------------------------------------


def run_approve(args: argparse.Namespace) -> int:
    with connect(args) as client:
        view = client.call("approvals.show", {"approvalId": find(client, args.approval)})
        if not args.json:
            show(render_question(view, terminal_columns()))
        _open_picture(args, view)
        choice = _given(args) or ask_how(view)
        if choice is None:
            say("bascule: nothing was answered")
            return USAGE
        unlock(client)
        return _show_result(args, client.call("approvals.decide", choice.params(view["approvalId"])))


def run_deny(args: argparse.Namespace) -> int:
    with connect(args) as client:
        approval_id = find(client, args.approval)
        unlock(client)
        choice = Choice("denied", reason=args.reason)
        return _show_result(args, client.call("approvals.decide", choice.params(approval_id)))


def _given(args: argparse.Namespace) -> Choice | None:
    if args.once:
        return Choice("approved")
    if args.for_run:
        return Choice("approved", "run")
    if args.rule is not None:
        return Choice("approved", "rule", args.rule, args.minutes)
    return None


def ask_how(view: dict[str, Any]) -> Choice | None:
    """Once, for the run, or by a rule; what a rule would mean is printed before it can be chosen."""
    offers = {str(offer["number"]): offer for offer in view.get("offers", ())}
    words = [f"y = {view.get('lasts', 'once')}"]
    if view.get("runId"):
        words.append("r = all that this run asks")
    words += [
        f"{number} = {one_line(offer['title'], already_visible=True)}, for a while ({number} 30 = for 30 minutes)"
        for number, offer in offers.items()
    ]
    words += ["n = no", "Enter = not now"]
    answer = ask_on_tty(f"Approve? {', '.join(words)}: ").lower()
    if answer in ("y", "yes"):
        return Choice("approved")
    if answer in ("n", "no"):
        return Choice("denied")
    if answer == "r" and view.get("runId"):
        return Choice("approved", "run")
    number, _, typed = answer.partition(" ")
    if number in offers:
        if not typed.strip():
            show(f"for a while: {one_line(offers[number]['text'], already_visible=True)}")
            typed = ask_on_tty(f"For how many minutes (1 to {MAX_RULE_MINUTES}, Enter for {DEFAULT_MINUTES})? ")
        typed = typed.strip()
        minutes = int(typed or DEFAULT_MINUTES) if (typed or "1").isdecimal() else 0
        if 1 <= minutes <= MAX_RULE_MINUTES:
            return Choice("approved", "rule", int(number), minutes)
        say(f"bascule: {typed!r} is not 1 to {MAX_RULE_MINUTES} minutes")
    return None


def _show_result(args: argparse.Namespace, result: dict[str, Any]) -> int:
    if args.json:
        show_json(result)
        return 0
    show(f"{result['approvalId']} is {result['state']}")
    if rule := result.get("rule"):
        show(f"until {rule['expiresAt']}: {one_line(rule['text'], already_visible=True)}")
    return 0


def run_answer(args: argparse.Namespace) -> int:
    with connect(args) as client:
        result = questions.read_and_answer(client, questions.find(client, args.ticket), args.text)
    if result is None:
        say("bascule: nothing was answered")
        return USAGE
    if args.json:
        show_json(result)
    else:
        show(f"answered: {result['ticketId']} is {result['status']}")
    return 0


# -- watching -------------------------------------------------------------------------------------


def run_watch(args: argparse.Namespace) -> int:
    """Questions come on connections of their own while the person, unlocked on another, answers."""
    news: queue.Queue[News] = queue.Queue(MAX_NEWS)
    with connect(args) as approvals, connect(args) as tickets, connect(args) as answering:
        say("waiting for questions; Ctrl-C ends it")
        # Before the list is read: what comes between the two is shown, not lost.
        newest = answering.call("events.recent", {"limit": 1})
        after = newest[-1]["id"] if newest else 0
        for view in questions.waiting(answering):
            news.put(Asked(view["ticketId"], view["from"]))
        for follow in (partial(_follow_approvals, approvals, news), partial(_follow_questions, tickets, news, after)):
            threading.Thread(target=follow, daemon=True).start()
        while (came := news.get()) is not None:
            _show_news(args, answering, came)
    return 0


def _follow_approvals(client: SyncClient, news: "queue.Queue[News]") -> None:
    try:
        for each in client.approvals():
            news.put(msgspec.to_builtins(each))
    except (BasculeError, DoorError) as error:
        say(f"bascule: {error.message}")
    finally:
        news.put(None)


def _follow_questions(client: SyncClient, news: "queue.Queue[News]", after: int) -> None:
    try:
        for event in client.events(after=after, agent_id=PERSON):
            if event.event == "ticket.sent" and event.ticket_id is not None:
                news.put(Asked(event.ticket_id, event.from_ or ""))
    except (BasculeError, DoorError):
        # The other stream has said it.
        return


def _show_news(args: argparse.Namespace, client: SyncClient, came: "dict[str, Any] | Asked") -> None:
    if isinstance(came, Asked):
        if args.json:
            show_json({"ticketId": came.ticket_id, "from": came.sender})
        else:
            _answer_question(client, came)
    elif args.json:
        show_json(came)
    elif came["state"] == "pending":
        _open_picture(args, came)
        _answer(client, came)
    else:
        show(f"{came['approvalId']} is {came['state']}")


def _answer_question(client: SyncClient, asked: Asked) -> None:
    sys.stderr.write("\a")
    show(one_line(f"{asked.sender} asks you something in words: {asked.ticket_id}"))
    if ask_on_tty("r = read and answer; Enter = later: ").lower() != "r":
        return
    try:
        questions.read_and_answer(client, asked.ticket_id)
    except BasculeError as error:
        say(f"bascule: {error.message}")


def _answer(client: SyncClient, view: dict[str, Any]) -> None:
    # The bell of the terminal, for a user who looks elsewhere.
    sys.stderr.write("\a")
    show(render_question(view, terminal_columns()))
    while True:
        answer = ask_on_tty(f"y = yes, {view.get('lasts', 'once')}; n = no; s = how; Enter = later: ").lower()
        if answer in ("y", "n", "s", ""):
            break
    choice = {"y": Choice("approved"), "n": Choice("denied"), "": None}.get(answer)
    if answer == "s":
        choice = ask_how(view)
    if choice is None:
        return
    try:
        if client.call("person.status", {}).get("unlockedS") is None:
            unlock(client)
        result = client.call("approvals.decide", choice.params(view["approvalId"]))
    except BasculeError as error:
        # Answered elsewhere meanwhile, expired, or a mistyped passphrase: the next question is another one.
        say(f"bascule: {error.message}")
        return
    if rule := result.get("rule"):
        show(f"until {rule['expiresAt']}: {one_line(rule['text'], already_visible=True)}")
