"""One target under atheris: `python run_target.py NAME [arguments of libFuzzer]`; not a test by itself."""

import importlib
import importlib.util
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris
from catalog import PLANTED, TARGETS

# (reliability T10) Whatever comes in, so much more than at the start and no more.
MAX_GROWTH_MB = 64


def others(chosen: tuple[str, ...]) -> Iterator[str]:
    """Modules of our packages that are not below these: atheris takes whole distributions, but for what it is told."""
    for package in {name.partition(".")[0] for name in chosen}:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for folder in map(Path, spec.submodule_search_locations or ()):
            for file in folder.rglob("*.py"):
                parts = [package, *file.relative_to(folder).with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                if not f"{name}.".startswith(tuple(f"{each}." for each in chosen)):
                    yield name


def main() -> None:
    name = sys.argv[1]
    chosen = (TARGETS | PLANTED)[name]
    module = chosen.module
    # Without it the fuzzer sees one input after the other and learns nothing.
    with atheris.instrument_imports([*chosen.instrumented, module], list(others(chosen.instrumented))):
        target = getattr(importlib.import_module(module), name)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    limit = f"-rss_limit_mb={held + MAX_GROWTH_MB}"
    atheris.Setup([sys.argv[0], limit, *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
