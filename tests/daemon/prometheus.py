"""Prometheus' text format, read as strictly as a scraper does."""

import re

# A name, labels whose values are quoted, a number.
_SAMPLE = re.compile(r'([a-z0-9_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? ([0-9.eE+-]+|\+Inf|NaN)')
_COMMENT = re.compile(r"# (HELP|TYPE) ([a-z0-9_]+) (.+)")


def parse(text: str) -> tuple[dict[str, str], dict[str, float]]:
    """Kinds by name, and numbers by name with labels; any line that is neither fails."""
    kinds: dict[str, str] = {}
    values: dict[str, float] = {}
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if comment := _COMMENT.fullmatch(line):
            if comment[1] == "TYPE":
                assert comment[2] not in kinds, f"a family stands in one piece: {line}"
                kinds[comment[2]] = comment[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, f"not a line of metrics: {line!r}"
        name = sample[1] + (sample[2] or "")
        assert name not in values, f"twice: {line}"
        values[name] = float(sample[3])
        family = re.sub(r"_(bucket|sum|count)$", "", sample[1])
        assert sample[1] in kinds or kinds.get(family) == "histogram", f"of no family: {line}"
    return kinds, values
