"""Guess the number: a game in ten lines, for a person at a terminal or an agent under a bridge."""

import random

from bascule_mod import Mod

mod, secret = Mod("guess"), random.randint(1, 100)


@mod.tool(read_only=True)
def number(is_it: int) -> str:
    """Guess the secret number between 1 and 100."""
    return "correct" if is_it == secret else "higher" if is_it < secret else "lower"


while not mod.launched:
    print(number(int(input("Your guess, 1 to 100: "))))
mod.serve()
