"""One target under atheris: `python run_target.py NAME [arguments of libFuzzer]`; not a test by itself."""

import importlib
import resource
import sys

import atheris
from catalog import PLANTED, TARGETS

# (reliability T10) Whatever comes in, so much more than at the start and no more.
MAX_GROWTH_MB = 64


def main() -> None:
    name = sys.argv[1]
    module = (TARGETS | PLANTED)[name].module
    # Without it the fuzzer sees one input after the other and learns nothing.
    with atheris.instrument_imports(include=["bascule", "bascule_mod", "gabp", module]):
        target = getattr(importlib.import_module(module), name)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    limit = f"-rss_limit_mb={held + MAX_GROWTH_MB}"
    atheris.Setup([sys.argv[0], limit, *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
