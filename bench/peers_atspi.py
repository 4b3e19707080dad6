"""How others read a window: run by the system's Python, which has the bindings.

python3 bench/peers_atspi.py {libatspi|dogtail} TITLE ROUNDS BUTTON

Prints one JSON object: elements, and the seconds of each round of tree, find and click.
"""

import json
import os
import sys
import time

WAY, TITLE, ROUNDS, BUTTON = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]


def timed(act, before=lambda: None):
    times = []
    for _ in range(ROUNDS):
        before()
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return times


def atspi():
    import gi

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi

    return Atspi


def children(node):
    return (node.get_child_at_index(at) for at in range(node.get_child_count()))


def window_of(api):
    for app in children(api.get_desktop(0)):
        if any(window.get_name() == TITLE for window in children(app)):
            return app
    raise SystemExit(f"no window is called {TITLE}")


def walk(api, node):
    """Role, name and states of every element, then the rectangles of what shows: what our tree has."""
    node.get_role()
    node.get_name()
    if node.get_state_set().contains(api.StateType.SHOWING):
        component = node.get_component_iface()
        if component:
            component.get_extents(api.CoordType.SCREEN)
    return 1 + sum(walk(api, child) for child in children(node))


def find(api, node, found):
    """All that match, as ours counts them."""
    if node.get_role() == api.Role.PUSH_BUTTON and BUTTON in node.get_name():
        found.append(node)
    for child in children(node):
        find(api, child, found)
    return found


def libatspi():
    api = atspi()
    app = window_of(api)
    nodes = walk(api, app)
    trees = timed(lambda: walk(api, app), app.clear_cache)
    finds = timed(lambda: find(api, app, []), app.clear_cache)
    button = find(api, app, [])[0]
    clicks = timed(lambda: button.get_action_iface().do_action(0))
    return {"nodes": nodes, "tree": trees, "find": finds, "click": clicks}


def dogtail():
    os.environ.setdefault("XDG_SESSION_TYPE", "x11")
    from dogtail.config import config

    config.checkForA11y = False
    config.logDebugToStdOut = False
    config.logDebugToFile = False
    config.actionDelay = 0
    from dogtail import tree

    app = next(each for each in tree.root.applications() if any(window.name == TITLE for window in each.children))

    def every():
        return app.findChildren(lambda node: (node.roleName, node.name, node.showing) and True, recursive=True)

    def buttons():
        return app.findChildren(lambda node: node.roleName == "push button" and BUTTON in node.name, recursive=True)

    nodes = len(every())
    trees, finds = timed(every), timed(buttons)
    button = buttons()[0]
    clicks = timed(lambda: button.doActionNamed("click"))
    return {"nodes": nodes, "tree": trees, "find": finds, "click": clicks}


print(json.dumps({"libatspi": libatspi, "dogtail": dogtail}[WAY]()))
