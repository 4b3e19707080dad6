"""An X client of its own that writes down every key and button that reaches the server, from whomever."""

import threading

from Xlib import X, display
from Xlib.ext import record, xtest
from Xlib.protocol import rq

from patience import PATIENCE

_NAMES = {X.KeyPress: "key down", X.KeyRelease: "key up", X.ButtonPress: "button down", X.ButtonRelease: "button up"}
# A key that no keyboard here has.
_MARK = 8


class Recorder:
    """`with Recorder(":99") as seen: ...; seen.events`: (what, which), in the server's order."""

    def __init__(self, name):
        self._control = display.Display(name)
        self._data = display.Display(name)
        self.events = []
        self._marked = threading.Event()
        ranges = [
            {
                "core_requests": (0, 0),
                "core_replies": (0, 0),
                "ext_requests": (0, 0, 0, 0),
                "ext_replies": (0, 0, 0, 0),
                "delivered_events": (0, 0),
                "device_events": (X.KeyPress, X.MotionNotify),
                "errors": (0, 0),
                "client_started": False,
                "client_died": False,
            }
        ]
        self._context = self._data.record_create_context(0, [record.AllClients], ranges)
        self._ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            self._data.record_enable_context(self._context, self._on_event)
        except TypeError:
            # python-xlib may stumble over the end of a recording; before the end nothing may go wrong.
            if not self._ending:
                raise

    def _on_event(self, reply):
        data = reply.data
        while reply.category == record.FromServer and len(data):
            event, data = rq.EventField(None).parse_binary_value(data, self._data.display, None, None)
            if event.type in _NAMES and event.detail == _MARK:
                if event.type == X.KeyRelease:
                    self._marked.set()
            elif event.type in _NAMES:
                self.events.append((_NAMES[event.type], event.detail))

    def catch_up(self):
        """All events that the server has had by now are in `events`; gives their number."""
        self._marked.clear()
        for kind in (X.KeyPress, X.KeyRelease):
            xtest.fake_input(self._control, kind, _MARK)
        self._control.flush()
        assert self._marked.wait(PATIENCE)
        return len(self.events)

    def count(self, what):
        return sum(each[0] == what for each in self.events)

    def down(self):
        """What is pressed and not released."""
        held = set()
        for what, which in list(self.events):
            kind, _, way = what.partition(" ")
            (held.add if way == "down" else held.discard)((kind, which))
        return held

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        assert self._thread.is_alive(), "the recorder died: what it did not see proves nothing"
        self._ending = True
        self._control.record_disable_context(self._context)
        self._control.flush()
        self._thread.join(PATIENCE)
        self._control.close()
        self._data.close()
