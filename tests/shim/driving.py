"""A tool's generator driven by hand."""

from bascule.shim.calls import Ask, resolved


class Script:
    """Drives a generator with the daemon's answers and remembers what was asked."""

    def __init__(self, generator, *answers):
        self.asked = []
        value = None
        answers = list(answers)
        try:
            asked = generator.send(None)
            while True:
                if isinstance(asked, Ask):
                    asked.params = resolved(asked.params)
                self.asked.append(asked)
                value = answers.pop(0)
                asked = generator.throw(value) if isinstance(value, Exception) else generator.send(value)
        except StopIteration as stop:
            self.result = stop.value

    @property
    def methods(self):
        return [ask.method for ask in self.asked]
