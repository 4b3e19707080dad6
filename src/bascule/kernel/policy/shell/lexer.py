"""Words: quoting, expansions and substitutions, taken apart the way `sh` does.

Commands run under `sh -c`, and `sh` is dash on some machines and bash on others. Where the two read a text
differently in a way that matters, it is `Unreadable`, and so opaque: a line must not mean one thing to the reader
and another to the shell.
"""

import re
from abc import ABC, abstractmethod

from bascule.kernel.policy.shell.text import (
    CHARS_PER_STEP,
    MAX_DEPTH,
    MAX_HEREDOCS,
    Assignment,
    Parsed,
    Part,
    RawCommand,
    Redirect,
    Unreadable,
    Word,
)

_META = frozenset(" \t\n;&|<>()")
# What makes another thing of the word before it.
_JOINS = frozenset("<>(")
_PLAIN = re.compile(r"[^ \t\n;&|<>()\\'\"$`]+")
_PLAIN_IN_QUOTES = re.compile(r'[^"\\$`]+')
_PLAIN_IN_BODY = re.compile(r"[^\\$`]+")
_PLAIN_IN_BRACES = re.compile(r"[^}\\'\"$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"[#!]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_DEFAULT = re.compile(r":?[-=]")
_PARENTHESIS = re.compile(r"[()]")
_ANSI = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
# Substitutions that answer with the program they are asked for.
_FINDERS = ({"which"}, {"command", "-v"}, {"type", "-p"}, {"type", "-P"})


# What it takes to begin and end a list: a body, a substitution, a text within a text.
STEPS_PER_LIST = 2
# A stretch of quoted text from here on is one piece for any parser.
BULK_CHARS = 64


class _Heredoc:
    def __init__(self, redirect: Redirect, delimiter: str, *, quoted: bool, strips: bool) -> None:
        self.redirect = redirect
        self.delimiter = delimiter
        self.quoted = quoted
        self.strips = strips


class Lexer(ABC):
    """One text and a place in it. What is found goes to `parsed`, which nested texts share."""

    def __init__(self, text: str, parsed: Parsed, depth: int = 0, *, whole: bool = False) -> None:
        self.text = text
        self.at = 0
        self.parsed = parsed
        self.depth = depth
        self.deeper()
        # Offsets mean something only in the text that was asked about.
        self.whole = whole
        self.pending: list[_Heredoc] = []

    def deeper(self) -> None:
        """A list inside the same text counts like a text inside a text."""
        self.parsed.budget.spend(STEPS_PER_LIST)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable(f"nested more than {MAX_DEPTH} deep")

    @abstractmethod
    def commands(self, ends: frozenset[str], *, piped: bool = False) -> str:
        """Read commands up to one of `ends`, and say which."""

    @abstractmethod
    def nested(self, text: str, start: int) -> "Lexer":
        """A reader of a text within this one, which was written from `start` to here."""

    # -- places -----------------------------------------------------------------------------------

    def peek(self) -> str:
        """The next character; a backslash before a newline joins lines before anything else is looked at."""
        character = self.text[self.at : self.at + 1]
        if character != "\\":
            return character
        while self.text.startswith("\\\n", self.at):
            self.at += 2
        return self.text[self.at : self.at + 1]

    def sees(self, operator: str) -> bool:
        if self.text.startswith("\\\n", self.at):
            self.peek()
        return self.text.startswith(operator, self.at)

    def blanks(self) -> None:
        """Spaces and a comment. Only called where a word may begin, so that `a#b` stays one word."""
        while self.peek() in (" ", "\t"):
            self.at += 1
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def newline(self) -> None:
        """Past a newline, and past the here-documents that begin after it."""
        self.at += 1
        pending, self.pending = self.pending, []
        for heredoc in pending:
            self._read_heredoc(heredoc)

    # -- words ------------------------------------------------------------------------------------

    def word(self) -> Word | None:
        """The word that begins here; None when none does."""
        self.peek()
        start = self.at
        parts: list[Part] = []
        differs = False
        while character := self._within_word(start):
            self.parsed.budget.spend()
            if character in "<>" and self.text.startswith("(", self.at + 1):
                parts.append(self._process_substitution())
            elif character in _META:
                break
            elif character == "$" and self.text.startswith("'", self.at + 1):
                part, escapes = self._ansi()
                differs = differs or escapes
                parts.append(part)
            elif character == "$" and self.text.startswith('"', self.at + 1):
                # A translated string in bash, a dollar and a string in dash.
                self.at += 1
            else:
                for part in self._piece(character):
                    _add(parts, part)
        if self.at == start:
            return None
        self.parsed.budget.spend_chars(self.at - start)
        return Word(tuple(parts), self.text[start : self.at], start if self.whole else -1, differs)

    def plain_word(self, found: re.Match[str]) -> Word:
        text = found.group(1)
        start = found.start(1)
        self.at = found.end()
        self.parsed.budget.spend_chars(len(text))
        return Word((Part("fixed", text),), text, start if self.whole else -1)

    def _within_word(self, start: int) -> str:
        """The next character of the word that began at `start`.

        Shells join lines before they look for descriptors, which are looked for here in the text as it stands: `2\\`
        and `>&1 su` on the next line is a redirection and a program, not the program `2`.
        """
        before = self.at
        character = self.peek()
        if start < before < self.at and character in _JOINS:
            raise Unreadable("a line continuation between a word and a redirection or parenthesis")
        return character

    def _piece(self, character: str) -> list[Part]:
        match character:
            case "\\":
                self.at += 2
                return [Part("fixed", self.text[self.at - 1 : self.at] or "\\", quoted=True)]
            case "'":
                return [self._single_quoted()]
            case '"':
                return self._double_quoted()
            case "$":
                return [self._dollar(quoted=False)]
            case "`":
                return [self._backquoted(quoted=False)]
            case _:
                return [self._plain()]

    def _plain(self) -> Part:
        found = _PLAIN.match(self.text, self.at)
        assert found is not None
        text = found.group()
        if not text.isprintable():
            # A carriage return, a no-break space, a zero-width joiner: some parsers see a space or nothing there.
            self.parsed.notes.append(f"an invisible character outside of quotes in {text!a}")
        self.at = found.end()
        return Part("fixed", text)

    def _single_quoted(self) -> Part:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a ' without its end")
        text = self.text[self.at + 1 : end]
        self.at = end + 1
        self._count_bulk(len(text))
        return Part("fixed", text, quoted=True)

    def _count_bulk(self, count: int) -> None:
        if count >= BULK_CHARS:
            self.parsed.bulk += count

    def _double_quoted(self) -> list[Part]:
        self.at += 1
        # Empty quotes are a word too.
        parts = [Part("fixed", "", quoted=True)]
        while (character := self.peek()) != '"':
            if not character:
                raise Unreadable('a " without its end')
            parts.append(self._inside_quotes(character, _PLAIN_IN_QUOTES, '$`"\\'))
        self.at += 1
        return parts

    def _inside_quotes(self, character: str, plain: re.Pattern[str], escapable: str) -> Part:
        self.parsed.budget.spend()
        if character == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            return Part("fixed", following if following and following in escapable else "\\" + following, quoted=True)
        if character == "$":
            return self._dollar(quoted=True)
        if character == "`":
            return self._backquoted(quoted=True)
        found = plain.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        self._count_bulk(found.end() - found.start())
        return Part("fixed", found.group(), quoted=True)

    def expanded(self) -> tuple[Part, ...]:
        """The whole text as the body of a here-document: only `$`, backquotes and backslashes mean something."""
        parts = []
        while character := self.peek():
            parts.append(self._inside_quotes(character, _PLAIN_IN_BODY, "$`\\"))
        return tuple(parts)

    def _ansi(self) -> tuple[Part, bool]:
        end = self.at + 2
        while (character := self.text[end : end + 1]) != "'":
            if not character:
                raise Unreadable("a $' without its end")
            if character == "\\":
                # bash goes on after \', dash ends the string there: the rest would be commands to one of them.
                if self.text.startswith("'", end + 1):
                    raise Unreadable("\\' inside $'...', which shells end at different places")
                end += 1
            end += 1
        text = self.text[self.at + 2 : end]
        if "\\x{" in text:
            raise Unreadable("\\x{...} inside $'...', which bash does not document")
        self.parsed.budget.spend_chars(end - self.at)
        self.at = end + 1
        # To bash, a null character is the end: $'su\0x' is su.
        value = _ANSI.sub(_ansi_escape, text).partition("\0")[0]
        return Part("fixed", value, quoted=True), "\\" in text

    # -- expansions -------------------------------------------------------------------------------

    def _dollar(self, *, quoted: bool) -> Part:
        start = self.at
        self.at += 1
        character = self.peek()
        if found := _NAME.match(self.text, self.at):
            self.at = found.end()
            return Part("variable", found.group(), quoted)
        if character == "(":
            return self._substitution(start, quoted=quoted)
        if character == "{":
            return self._braces(start, quoted=quoted)
        if character and character in "0123456789@*#?$!-":
            self.at += 1
            return Part("dynamic", self.text[start : self.at], quoted)
        if character == "[" and not quoted:
            raise Unreadable("$[...], arithmetic to bash and text to sh")
        if character and character in "'\"" and not quoted:
            # Shells join the lines first: to bash this is $"..." or $'...', whose dollar goes.
            raise Unreadable("a line continuation between $ and a quote")
        return Part("fixed", "$", quoted=True)

    def _substitution(self, start: int, *, quoted: bool) -> Part:
        if self.sees("((") and (end := self.arithmetic_end()) is not None:
            begin, self.at = self.at + 2, end + 2
            self.nested(self.text[begin:end], start).expanded()
            return Part("dynamic", self.text[start : self.at], quoted)
        self.at += 1
        before = len(self.parsed.commands)
        self.commands(frozenset(")"))
        source = self.text[start : self.at]
        return _found_program(self.parsed.commands[before:]) or Part("dynamic", source, quoted)

    def _process_substitution(self) -> Part:
        start = self.at
        self.at += 2
        # `tee >(sh)`: what is written to it is what it reads.
        self.commands(frozenset(")"), piped=self.text[start] == ">")
        return Part("dynamic", self.text[start : self.at], quoted=True)

    def _backquoted(self, *, quoted: bool) -> Part:
        start = self.at
        self.at += 1
        inside: list[str] = []
        escapable = '$`\\"' if quoted else "$`\\"
        while (character := self.text[self.at : self.at + 1]) != "`":
            if not character:
                raise Unreadable("a ` without its end")
            if character == "\\" and (following := self.text[self.at + 1 : self.at + 2]) and following in escapable:
                character = following
                self.at += 1
            inside.append(character)
            self.at += 1
        self.parsed.budget.spend_chars(self.at - start)
        self.at += 1
        before = len(self.parsed.commands)
        self.nested("".join(inside), start).commands(frozenset([""]))
        source = self.text[start : self.at]
        return _found_program(self.parsed.commands[before:]) or Part("dynamic", source, quoted)

    def _braces(self, start: int, *, quoted: bool) -> Part:
        self.at += 1
        named = _BRACED.match(self.text, self.at)
        if named is None:
            raise Unreadable(f"{self.text[start : start + 20]} is not an expansion that sh knows")
        name = named.group()
        self.at = named.end()
        if self.text.startswith("}", self.at):
            self.at += 1
            plain = _NAME.fullmatch(name) is not None
            return Part("variable", name, quoted) if plain else Part("dynamic", self.text[start : self.at], quoted)
        operator = _DEFAULT.match(self.text, self.at)
        if operator is not None:
            self.at = operator.end()
        elif self.text.startswith("@", self.at) and "P" in self.text[self.at : self.at + 3]:
            self.parsed.notes.append("${...@P} runs the commands in a variable's value")
        word = self._word_in_braces(quoted=quoted)
        if operator is None or not _NAME.fullmatch(name):
            return Part("dynamic", self.text[start : self.at], quoted)
        if operator.group().endswith("="):
            self.parsed.assignments.append(Assignment(name, word))
        return Part("variable", name, quoted, word)

    def _word_in_braces(self, *, quoted: bool) -> Word:
        self.deeper()
        start = self.at
        parts: list[Part] = []
        while (character := self.peek()) != "}":
            if not character:
                raise Unreadable("a ${ without its end")
            self.parsed.budget.spend()
            if character == "'" and quoted:
                raise Unreadable("a ' inside ${...} inside quotes, which shells read differently")
            if character in "\\'\"$`":
                parts.extend(self._piece(character))
            else:
                found = _PLAIN_IN_BRACES.match(self.text, self.at)
                assert found is not None
                parts.append(Part("fixed", found.group(), quoted))
                self.at = found.end()
        self.at += 1
        self.depth -= 1
        return Word(tuple(parts), self.text[start : self.at - 1])

    def arithmetic_end(self) -> int | None:
        """Where the `))` is that belongs to the `((` here; None when the two are just nested parentheses."""
        depth = 0
        for found in _PARENTHESIS.finditer(self.text, self.at):
            self.parsed.budget.spend()
            depth += 1 if found.group() == "(" else -1
            if depth == 1 and found.group() == ")":
                return found.start() if self.text.startswith("))", found.start()) else None
        self.parsed.budget.spend_chars(len(self.text) - self.at)
        return None

    # -- here-documents ---------------------------------------------------------------------------

    def await_heredoc(self, redirect: Redirect) -> None:
        self.parsed.heredocs += 1
        if self.parsed.heredocs > MAX_HEREDOCS:
            raise Unreadable(f"more than {MAX_HEREDOCS} here-documents")
        parts = redirect.target.parts
        if any(part.kind != "fixed" for part in parts):
            raise Unreadable("a here-document whose end is an expansion")
        self.pending.append(
            _Heredoc(
                redirect,
                "".join(part.text for part in parts),
                quoted=any(part.quoted for part in parts),
                strips=redirect.operator == "<<-",
            )
        )

    def _read_heredoc(self, heredoc: _Heredoc) -> None:
        start = self.at
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            if heredoc.strips:
                line = line.lstrip("\t")
            if line == heredoc.delimiter:
                if lines and lines[-1].endswith("\\") and not heredoc.quoted:
                    raise Unreadable("a here-document's end that the line before it may join")
                break
            lines.append(line)
            if not len(lines) % CHARS_PER_STEP:
                self.parsed.budget.spend(CHARS_PER_STEP // 8)
        else:
            raise Unreadable("a here-document without its end")
        body = "".join(line + "\n" for line in lines)
        source = self.text[start : self.at]
        if heredoc.quoted:
            self._count_bulk(len(source))
        parts = (Part("fixed", body, quoted=True),) if heredoc.quoted else self.nested(body, start).expanded()
        heredoc.redirect.body = Word(parts, source)


def _ansi_escape(found: re.Match[str]) -> str:
    hexadecimal, short, long, octal, control, letter = found.groups()
    if number := hexadecimal or short or long:
        code = int(number, 16)
        return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else "\N{REPLACEMENT CHARACTER}"
    if octal:
        return chr(int(octal, 8) & 0xFF)
    if control:
        return chr(ord(control[0]) & 0x1F)
    return letter if letter in "\\'\"?" else _ANSI_LETTERS.get(letter, f"\\{letter}")


def _found_program(commands: list[RawCommand]) -> Part | None:
    """`$(which git)` is git, wherever it is."""
    if len(commands) != 1 or not 2 <= len(commands[0].words) <= 3 or commands[0].assignments:
        return None
    bare = [word.bare for word in commands[0].words]
    if set(bare[:-1]) in _FINDERS and bare[-1] is not None and not bare[-1].startswith("-"):
        return Part("fixed", bare[-1], quoted=True)
    return None


def _add(parts: list[Part], part: Part) -> None:
    """Two plain parts in a row are one that a line continuation had split: `x` and `+=1` is an assignment."""
    last = parts[-1] if parts else None
    if last is not None and last.kind == part.kind == "fixed" and not last.quoted and not part.quoted:
        parts[-1] = Part("fixed", last.text + part.text)
    else:
        parts.append(part)
