"""The person's passphrase: hashed with scrypt, typed on the terminal, slow to guess.

`make_hash` and `verify` take about a tenth of a second of CPU and release the interpreter lock: the
daemon calls them in a thread.
"""

import base64
import hashlib
import hmac
import os
import re
import termios
import unicodedata

import msgspec

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.limits import MAX_PASSPHRASE_CHARS, MIN_PASSPHRASE_CHARS

# 32 MiB and about 0.1 s per guess: dear for a guesser with the stolen file, not felt by a person.
SCRYPT_LOG_N = 15
SCRYPT_R = 8
SCRYPT_P = 1
SALT_BYTES = 16
HASH_BYTES = 32
# A damaged row must not make us ask for all the memory there is.
MAX_SCRYPT_MEMORY = 256 * 1024 * 1024
MAX_SCRYPT_P = 16

# Long enough for a look at a few approvals, short enough for a terminal left open.
UNLOCK_SECONDS = 15 * 60

# A person mistypes a few times; from then on waiting is longer than any guessing is worth.
FREE_TRIES = 5
FIRST_PAUSE_SECONDS = 30.0
# Doubling stops here: the person must not be locked out for a day by somebody else's guessing.
LONGEST_PAUSE_SECONDS = 15 * 60.0

# A terminal hands over lines of at most 4095 bytes and drops what is beyond (Linux N_TTY); such a line
# may have lost its end.
MAX_TTY_LINE_BYTES = 4095
# Where tcgetattr's list has c_lflag.
_LOCAL_MODES = 3

_PHC = re.compile(r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,3}),p=([0-9]{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)")


class NoTerminal(InvalidRequest):
    """There is no terminal on which a person could type."""


# -- hashing --------------------------------------------------------------------------------------


def make_hash(passphrase: str) -> str:
    """The form to store, with its parameters: `$scrypt$ln=15,r=8,p=1$<salt>$<hash>`."""
    secret = _normalised(passphrase)
    if len(secret) < MIN_PASSPHRASE_CHARS:
        raise InvalidRequest(
            f"the passphrase is too short: it needs at least {MIN_PASSPHRASE_CHARS} characters",
            hint="a few unrelated words are easy to remember and hard to guess",
        )
    salt = os.urandom(SALT_BYTES)
    derived = _scrypt(_encoded(secret), salt, log_n=SCRYPT_LOG_N, r=SCRYPT_R, p=SCRYPT_P, size=HASH_BYTES)
    return f"$scrypt$ln={SCRYPT_LOG_N},r={SCRYPT_R},p={SCRYPT_P}${_to_base64(salt)}${_to_base64(derived)}"


def verify(passphrase: str, stored: str) -> bool:
    """Whether it is the passphrase behind `stored`; ValueError when `stored` is not one of our hashes."""
    parts = _PHC.fullmatch(stored)
    if parts is None:
        raise ValueError("the stored passphrase hash is damaged; reset it with the daemon stopped")
    log_n, r, p = (int(number) for number in parts.groups()[:3])
    salt, expected = (_from_base64(text) for text in parts.groups()[3:])
    secret = _encoded(_normalised(passphrase))
    return hmac.compare_digest(_scrypt(secret, salt, log_n=log_n, r=r, p=p, size=len(expected)), expected)


def _normalised(passphrase: str) -> str:
    # The same letters come composed from one keyboard and decomposed from another; without NFC a person
    # who moves between terminals would be locked out. Not NFKC, which would make different characters
    # the same: RFC 8265 (OpaqueString) draws the line at the same place. Case and spaces count.
    if len(passphrase) > MAX_PASSPHRASE_CHARS:
        raise InvalidRequest(f"the passphrase is too long: at most {MAX_PASSPHRASE_CHARS} characters")
    return unicodedata.normalize("NFC", passphrase)


def _encoded(secret: str) -> bytes:
    try:
        return secret.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the passphrase is not valid Unicode text") from None


def _scrypt(secret: bytes, salt: bytes, *, log_n: int, r: int, p: int, size: int) -> bytes:
    # 128 * N * r for the table, 128 * r for each lane and two blocks of work space.
    memory = 128 * r * (2**log_n + p + 2)
    if not (log_n and r and 0 < p <= MAX_SCRYPT_P) or memory > MAX_SCRYPT_MEMORY:
        raise ValueError("the stored passphrase hash asks for unreasonable work; it is damaged")
    return hashlib.scrypt(secret, salt=salt, n=2**log_n, r=r, p=p, maxmem=memory, dklen=size)


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


# -- unlocking ------------------------------------------------------------------------------------


class Unlock(msgspec.Struct, frozen=True):
    """One connection is the person's until a moment of the monotonic clock; it dies with the daemon."""

    deadline: float

    @classmethod
    def start(cls, now: float) -> "Unlock":
        return cls(now + UNLOCK_SECONDS)

    def active(self, now: float) -> bool:
        return now < self.deadline


class PassphraseThrottle:
    """Wrong passphrases, for the whole daemon: five are free, then pauses of 30 s doubling to 15 min."""

    def __init__(self) -> None:
        self._wrong = 0
        self._closed_until = float("-inf")

    def attempt(self, now: float) -> float | None:
        """Ask before `verify`. None: go on; a number: answer 429, come back after that many seconds.

        An attempt counts as wrong until `succeeded` is called: many sent at once, each checked in its own
        thread, would otherwise all be under way before the first is found wrong.
        """
        if now < self._closed_until:
            return self._closed_until - now
        self._wrong += 1
        beyond = self._wrong - FREE_TRIES
        if beyond >= 0:
            # The exponent is held small: 2.0 ** 1024 is an OverflowError.
            pause = FIRST_PAUSE_SECONDS * 2.0 ** min(beyond, 16)
            self._closed_until = now + min(pause, LONGEST_PAUSE_SECONDS)
        return None

    def succeeded(self) -> None:
        """The person is here: all is forgiven."""
        self._wrong = 0
        self._closed_until = float("-inf")


# -- the terminal ---------------------------------------------------------------------------------


def read_from_tty(prompt: str) -> str:
    """A line typed on the controlling terminal, not echoed.

    /dev/tty is opened here and nothing else is read: a passphrase from stdin, argv or the environment
    could be given by the very agent it is meant to keep out, and would be seen in `ps` or a history.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise _no_terminal() from error
    try:
        return _read_secret_line(terminal, prompt)
    finally:
        os.close(terminal)


def _no_terminal() -> NoTerminal:
    return NoTerminal(
        "there is no terminal to type the passphrase on",
        hint="run the command in a terminal of your own; a passphrase is never read from a pipe, an argument "
        "or the environment",
    )


def _read_secret_line(terminal: int, prompt: str) -> str:
    try:
        before = termios.tcgetattr(terminal)
    except termios.error as error:
        raise _no_terminal() from error
    quiet = termios.tcgetattr(terminal)
    quiet[_LOCAL_MODES] = (quiet[_LOCAL_MODES] & ~termios.ECHO) | termios.ICANON
    # TCSAFLUSH throws away what was typed, or injected, before the prompt was there.
    termios.tcsetattr(terminal, termios.TCSAFLUSH, quiet)
    try:
        os.write(terminal, prompt.encode())
        line = _read_line(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        # The Enter was not echoed either.
        os.write(terminal, b"\n")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("what the terminal sent is not UTF-8", hint="use a UTF-8 terminal") from None


def _read_line(terminal: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(terminal, MAX_TTY_LINE_BYTES + 1)
        if not chunk:
            break
        line += chunk
        if len(line) >= MAX_TTY_LINE_BYTES:
            raise InvalidRequest(f"the passphrase is too long: at most {MAX_PASSPHRASE_CHARS} characters")
    typed = line.removesuffix(b"\n")
    if not typed:
        raise InvalidRequest("nothing was typed", hint="type the passphrase and press Enter")
    return typed
