"""Commands: lists, pipelines, compound commands and redirections, flattened to the simple commands they are made of.

What is kept is which programs a text names, not when they run: of `a && b || c` all three may run. A text that dash
and bash would take for different commands gives the commands of both.
"""

import re

from bascule.kernel.policy.shell.lexer import Lexer
from bascule.kernel.policy.shell.text import (
    MAX_PIPELINE,
    Assignment,
    Budget,
    Parsed,
    Part,
    RawCommand,
    Redirect,
    Unreadable,
    Word,
)

_BOUNDARY = r"(?=[\s;&|<>()]|$)"
_CLOSING = re.compile(rf"(?:then|do|done|fi|else|elif|esac|\}}){_BOUNDARY}")
_OPENING = re.compile(rf"(?:if|while|until|for|select|case|\{{|function|\[\[){_BOUNDARY}")
_NOT = re.compile(rf"!{_BOUNDARY}")
# bash times compound commands; to dash it is a program's name, and what follows a syntax error.
_TIME = re.compile(r"time[ \t]+(?:-p[ \t]+)?(?=\(|\{\s|(?:if|while|until|for|case)\s)")
_IN = re.compile(rf"in{_BOUNDARY}")
_DO = re.compile(rf"do{_BOUNDARY}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION_NAME = re.compile(r"[^\s;&|<>()'\"$`\\]+")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^]]*\])?(\+)?=", re.DOTALL)
_DESCRIPTOR = re.compile(r"[0-9]+(?=[<>])")
_NAMED_DESCRIPTOR = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}[<>]")
_REDIRECT = re.compile(r"<<<|<<-|<<|<&|<>|<|>>|>&|>\||>|&>>|&>")
# A word that every shell reads as it stands; what stands behind it makes nothing else of it.
_PLAIN_WORD = re.compile(r"[ \t]*([A-Za-z0-9_./:,@%+-]+)(?=[ \t\n;&|]|\Z)")
_WORD = re.compile(r"[A-Za-z0-9_./:,@%+-]+")
# Such words up to the end of their command; the first is none that the shell keeps for itself.
_PLAIN_COMMAND = re.compile(
    r"[ \t\n]*+((?!(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|function|time)"
    r"(?![A-Za-z0-9_./:,@%+-]))"
    rf"{_WORD.pattern}(?:[ \t]++{_WORD.pattern})*+)[ \t]*+(?:;(?![;&])|\n|&&|\|\||&(?![&>]))"
)
_END_OF_TEXT = frozenset([""])
_END_OF_CASE = frozenset([";;", "esac"])


def parse(text: str, budget: Budget | None = None) -> Parsed:
    """All simple commands of a text. Never raises: what stops the reading becomes a note, what was found stays."""
    parsed = Parsed(budget=budget or Budget())
    try:
        Grammar(text, parsed, whole=True).commands(_END_OF_TEXT)
    except Unreadable as error:
        parsed.notes.append(str(error))
    return parsed


class Grammar(Lexer):
    def nested(self, text: str, start: int) -> "Grammar":
        if self.whole:
            self.parsed.unplaced.append((start, self.at))
        return Grammar(text, self.parsed, self.depth + 1)

    # -- lists ------------------------------------------------------------------------------------

    def commands(self, ends: frozenset[str], *, piped: bool = False) -> str:
        self.deeper()
        while True:
            # A line of these must not cost more than it has to: most commands are nothing else.
            while not self.pending and (plain := _PLAIN_COMMAND.match(self.text, self.at)):
                self._plain_command(plain, piped=piped)
            end = self._end_of_list()
            if end is not None:
                if end not in ends:
                    raise Unreadable(f"unexpected {end}" if end else "the text ends too early")
                if self.pending:
                    raise Unreadable("a here-document that has not begun where its command ends")
                self.at += len(end)
                self.depth -= 1
                return end
            self.parsed.budget.spend()
            self._pipeline(piped=piped)
            self.blanks()
            if self.sees("&&") or self.sees("||"):
                self.at += 2
            elif self.peek() in (";", "&") and not self.sees(";;"):
                self.at += 1
            elif self.peek() not in ("", "\n", ")", ";"):
                raise Unreadable(f"unexpected {self.text[self.at : self.at + 10]!r}")

    def _plain_command(self, found: re.Match[str], *, piped: bool) -> None:
        words = []
        for each in _WORD.finditer(self.text, *found.span(1)):
            source = each.group()
            self.parsed.budget.spend_chars(len(source))
            words.append(Word((Part("fixed", source),), source, each.start() if self.whole else -1))
        self.at = found.end()
        self.parsed.add(RawCommand(words, [], [], piped, plain=True))

    def _end_of_list(self) -> str | None:
        self._lines()
        if not self.peek():
            return ""
        if self.peek() == ")":
            return ")"
        if self.sees(";"):
            return ";;" if self.sees(";;") or self.sees(";&") else ";"
        closing = _CLOSING.match(self.text, self.at)
        return closing.group() if closing else None

    def _lines(self) -> None:
        self.blanks()
        while self.peek() == "\n":
            self.newline()
            self.blanks()

    def _pipeline(self, *, piped: bool) -> None:
        start, timed = self.at, False
        while prefix := _NOT.match(self.text, self.at) or _TIME.match(self.text, self.at):
            timed = timed or prefix.re is _TIME
            self.at = prefix.end()
            self.blanks()
        self._command(piped=piped)
        if timed and self.whole:
            # The second parser takes `time` for a program, and what follows apart wrongly.
            self.parsed.unplaced.append((start, self.at))
        for _ in range(MAX_PIPELINE):
            self.blanks()
            if not self.sees("|") or self.sees("||"):
                return
            self.at += 2 if self.sees("|&") else 1
            self._lines()
            self._command(piped=True)
        raise Unreadable(f"more than {MAX_PIPELINE} commands in one pipeline")

    def _command(self, *, piped: bool) -> None:
        self.peek()
        start = len(self.parsed.commands)
        if self.sees("(("):
            self._arithmetic(piped=piped)
        elif self.sees("("):
            self.at += 1
            self.commands(frozenset(")"), piped=piped)
        elif opening := _OPENING.match(self.text, self.at):
            self.at = opening.end()
            self._compound(opening.group(), piped=piped)
        else:
            self._simple(piped=piped)
            return
        redirects = self._redirects()
        if not redirects:
            return
        for command in self.parsed.commands[start:]:
            # What is fed to a group is fed to whatever in it reads.
            if command.input is None:
                command.redirects.extend(redirect for redirect in redirects if redirect.is_input)
        self.parsed.add(RawCommand([], [], redirects))

    # -- compound commands ------------------------------------------------------------------------

    def _compound(self, word: str, *, piped: bool) -> None:
        match word:
            case "{":
                self.commands(frozenset("}"), piped=piped)
            case "if":
                self.commands(frozenset(["then"]), piped=piped)
                while (end := self.commands(frozenset(["elif", "else", "fi"]), piped=piped)) != "fi":
                    if end == "else":
                        self.commands(frozenset(["fi"]), piped=piped)
                        return
                    self.commands(frozenset(["then"]), piped=piped)
            case "while" | "until":
                self.commands(frozenset(["do"]), piped=piped)
                self.commands(frozenset(["done"]), piped=piped)
            case "for" | "select":
                self._for(piped=piped)
            case "case":
                self._case(piped=piped)
            case "function":
                self._function_of_bash()
            case _:
                self._test()

    def _for(self, *, piped: bool) -> None:
        self.blanks()
        if self.sees("(("):
            end = self.arithmetic_end()
            if end is None:
                raise Unreadable("a for (( without its end")
            start, self.at = self.at, end + 2
            self.nested(self.text[start + 2 : end], start).expanded()
        else:
            name = _NAME.match(self.text, self.at)
            if name is None:
                raise Unreadable("a for without a name")
            self.at = name.end()
            self._lines()
            if _IN.match(self.text, self.at):
                self.at += 2
                for value in self._words():
                    self.parsed.assignments.append(Assignment(name.group(), value, listed=True))
            else:
                self.parsed.assignments.append(Assignment(name.group(), None))
        self.blanks()
        if self.peek() == ";":
            self.at += 1
        self._lines()
        if not _DO.match(self.text, self.at):
            raise Unreadable("a loop without do")
        self.at += 2
        self.commands(frozenset(["done"]), piped=piped)

    def _words(self) -> list[Word]:
        words = []
        self.blanks()
        while (word := self.word()) is not None:
            words.append(word)
            self.blanks()
        return words

    def _case(self, *, piped: bool) -> None:
        self.blanks()
        if self.word() is None:
            raise Unreadable("a case without a word")
        self._lines()
        if not _IN.match(self.text, self.at):
            raise Unreadable("a case without in")
        self.at += 2
        while True:
            self._lines()
            if (closing := _CLOSING.match(self.text, self.at)) and closing.group() == "esac":
                self.at += 4
                return
            if self.peek() == "(":
                self.at += 1
            self._patterns()
            if self.commands(_END_OF_CASE, piped=piped) == "esac":
                return
            # Past the third character of bash's ;;&
            self.at += self.text.startswith("&", self.at)

    def _patterns(self) -> None:
        while True:
            self.blanks()
            if self.word() is None:
                raise Unreadable("a case whose pattern is missing")
            self.blanks()
            if self.peek() == "|":
                self.at += 1
            elif self.peek() == ")":
                self.at += 1
                return
            else:
                raise Unreadable("a case pattern that does not end")

    def _function_of_bash(self) -> None:
        self.blanks()
        name = _FUNCTION_NAME.match(self.text, self.at)
        if name is None:
            raise Unreadable("a function without a name")
        self.at = name.end()
        self.blanks()
        if self.peek() == "(":
            self._empty_parentheses()
        self._body(name.group())

    def _empty_parentheses(self) -> None:
        self.at += 1
        self.blanks()
        if self.peek() != ")":
            raise Unreadable("a ( after a word")
        self.at += 1

    def _body(self, name: str) -> None:
        self.parsed.functions.add(name)
        self._lines()
        self.deeper()
        # It may be called in a pipeline.
        self._command(piped=True)
        self.depth -= 1

    def _arithmetic(self, *, piped: bool) -> None:
        """`((...))`: arithmetic to bash, a subshell in a subshell to dash."""
        end = self.arithmetic_end()
        if end is None:
            self.at += 1
            self.commands(frozenset(")"), piped=piped)
            return
        start, self.at = self.at, end + 2
        inside = self.text[start + 2 : end]
        self.nested(inside, start).expanded()
        self.nested(inside, start).commands(_END_OF_TEXT, piped=piped)

    def _test(self) -> None:
        """`[[ a || b ]]`: one test to bash. dash has no such command, fails, and so goes on with `b ]]`."""
        words: list[Word] = []
        # What dash would do with the words since the last operator.
        runs, failed = False, True
        while True:
            self.blanks()
            character = self.peek()
            if not character:
                raise Unreadable("a [[ without its end")
            if character in "|&;\n":
                self._run_by_dash(words, runs=runs)
                words = []
                runs = not (self.sees("&&") and failed)
                failed = failed and not runs
                self._operator_in_test(character)
            elif character in "()<>" and not self._process_substitution_here():
                self.at += 1
            else:
                word = self.word()
                assert word is not None
                if word.bare == "]]":
                    break
                words.append(word)
                if word.bare == "=~":
                    self._regular_expression()
        self._run_by_dash(words, runs=runs)

    def _run_by_dash(self, words: list[Word], *, runs: bool) -> None:
        if runs and words:
            self.parsed.add(RawCommand(words, [], []))

    def _operator_in_test(self, character: str) -> None:
        if character == "\n":
            self.newline()
            return
        self.at += 2 if self.sees(character * 2) else 1
        self._lines()

    def _process_substitution_here(self) -> bool:
        return self.sees("<(") or self.sees(">(")

    def _regular_expression(self) -> None:
        """Up to the next blank outside of parentheses; what dash would run after a bare `|` is a command to it."""
        self.blanks()
        start, depth = self.at, 0
        while (character := self.peek()) and (depth or character not in " \t\n"):
            depth += {"(": 1, ")": -1}.get(character, 0)
            self.at += 2 if character == "\\" else 1
        expression = self.text[start : self.at]
        self.nested(expression, start).expanded()
        if "(" not in expression and any(operator in expression for operator in "|;&"):
            raise Unreadable("a regular expression that sh takes for commands")

    # -- simple commands --------------------------------------------------------------------------

    def _simple(self, *, piped: bool) -> None:
        command = RawCommand([], [], [], piped)
        # dash reads `a &> f b` as `a &` and `> f b`.
        second: RawCommand | None = None
        plain = 0
        while True:
            plain += self._plain_words(command, second)
            self.blanks()
            if self._redirect_here():
                if self.sees("&>"):
                    second = second or RawCommand([], [], [])
                command.redirects.append(self._redirect())
                continue
            if _NAMED_DESCRIPTOR.match(self.text, self.at):
                raise Unreadable("a {name} before < or >, a word to sh and a descriptor to bash")
            if self.peek() == "(":
                self._parenthesis_after(command)
                return
            word = self.word()
            if word is None:
                break
            self._take(command, word)
            if second is not None:
                self._take(second, word)
        if not (command.words or command.assignments or command.redirects):
            raise Unreadable("a command is missing")
        command.plain = 0 < plain == len(command.words) and not command.assignments and not command.redirects
        self.parsed.add(command)
        if second is not None and (second.words or second.assignments):
            self.parsed.add(second)

    def _plain_words(self, command: RawCommand, second: RawCommand | None) -> int:
        before = len(command.words)
        while plain := _PLAIN_WORD.match(self.text, self.at):
            word = self.plain_word(plain)
            command.words.append(word)
            if second is not None:
                second.words.append(word)
        return len(command.words) - before

    def _take(self, command: RawCommand, word: Word) -> None:
        assignment = _assignment(word)
        is_array = assignment is not None and self.peek() == "(" and self.text[self.at - 1] == "="
        if is_array:
            self._array()
        if assignment is None or command.words:
            command.words.append(word)
        else:
            command.assignments.append(Assignment(assignment.name, None) if is_array else assignment)

    def _array(self) -> None:
        self.at += 1
        while True:
            self._lines()
            if self.peek() == ")":
                self.at += 1
                return
            if self.word() is None:
                raise Unreadable("an array without its end")

    def _parenthesis_after(self, command: RawCommand) -> None:
        if len(command.words) != 1 or command.assignments or command.redirects:
            raise Unreadable("a ( after a word")
        self._empty_parentheses()
        self._body(command.words[0].source)

    # -- redirections -----------------------------------------------------------------------------

    def _redirect_here(self) -> bool:
        self.peek()
        at = self.at
        if found := _DESCRIPTOR.match(self.text, at):
            at = found.end()
        return _REDIRECT.match(self.text, at) is not None and not (
            at == self.at and self._process_substitution_here() and not self.sees("<<(")
        )

    def _redirects(self) -> list[Redirect]:
        redirects = []
        self.blanks()
        while self._redirect_here():
            redirects.append(self._redirect())
            self.blanks()
        return redirects

    def _redirect(self) -> Redirect:
        descriptor = None
        if found := _DESCRIPTOR.match(self.text, self.at):
            # Beyond what any shell opens; int() would take minutes for thousands of digits.
            descriptor = int(found.group()[:9])
            self.at = found.end()
        operator = _REDIRECT.match(self.text, self.at)
        assert operator is not None
        self.at = operator.end()
        self.blanks()
        target = self.word()
        if target is None:
            raise Unreadable("a redirection without a target")
        redirect = Redirect(operator.group(), target, descriptor=descriptor)
        if redirect.operator in ("<<", "<<-"):
            self.await_heredoc(redirect)
        elif redirect.operator == "<<<":
            redirect.body = target
        return redirect


def _assignment(word: Word) -> Assignment | None:
    """`NAME=value` as an assignment; an appended or indexed one has no constant value."""
    first = word.parts[0]
    if first.kind != "fixed" or first.quoted:
        return None
    found = _ASSIGNED.match(first.text)
    if found is None:
        return None
    name, index, appended = found.groups()
    if index or appended:
        return Assignment(name, None)
    rest = first.text[found.end() :]
    parts = ((Part("fixed", rest),) if rest else ()) + word.parts[1:]
    return Assignment(name, Word(parts, word.source[found.end() :], differs=word.differs))
