"""A program that writes down every key it gets, with its time; `-p` asks for bracketed paste, `-q` ends at `q`.

python typewriter.py LOG [-p] [-e]      -e: echoes, as programs with an input box do
"""

import json
import os
import sys
import termios
import time
import tty

log = open(sys.argv[1], "a", buffering=1)  # noqa: SIM115 - written until the process is killed
before = termios.tcgetattr(0)
tty.setraw(0)
if "-p" in sys.argv:
    os.write(1, b"\x1b[?2004h")
os.write(1, b"ready> ")
while True:
    data = os.read(0, 65536)
    log.write(json.dumps({"at": time.time(), "keys": data.decode("latin-1")}) + "\n")
    if "-e" in sys.argv:
        os.write(1, data.replace(b"\x1b", b"^"))
    if not data or data.endswith(b"\x04"):
        break
termios.tcsetattr(0, termios.TCSADRAIN, before)
sys.exit(5)
