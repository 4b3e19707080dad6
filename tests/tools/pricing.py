"""What a text costs a model."""

import os
import subprocess

from patience import PATIENCE

# o200k makes 4.4 characters of our tables one token; the margin is for words it does not know.
CHARACTERS_PER_TOKEN = 4.25
# A module with `encode`, e.g. .../node_modules/gpt-tokenizer/esm/encoding/o200k_base.js; read before fixtures clean up.
TOKENIZER = os.environ.get("BASCULE_TOKENIZER")
_COUNT = "import(process.argv[1]).then(m => console.log(m.encode(require('fs').readFileSync(0, 'utf8')).length))"


def tokens_in(text):
    """Counted with the tokenizer there is, or estimated."""
    if TOKENIZER is None:
        return len(text) / CHARACTERS_PER_TOKEN
    done = subprocess.run(
        ["node", "-e", _COUNT, TOKENIZER],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    return int(done.stdout)
