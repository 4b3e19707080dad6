"""The table that `make coverage` prints."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from coverage_table import lines


def file(statements, covered, branches=0, taken=0):
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {"summary": dict(zip(names, (statements, covered, branches, taken), strict=True))}


def test_files_are_counted_by_package_and_the_worst_stands_first():
    report = {
        "files": {
            "src/bascule/kernel/gate.py": file(10, 10, 4, 4),
            "src/bascule/kernel/policy/rules.py": file(10, 5),
            "src/bascule/kernel/policy/deeper/text.py": file(10, 5, 4, 0),
            "src/bascule/bridge_list.py": file(4, 3),
            "src/bascule/wire/__init__.py": file(0, 0),
            "packages/gabp/src/gabp/codec.py": file(10, 9),
        }
    }
    assert [line.split() for line in lines(report)] == [
        ["package", "lines", "branches", "percent"],
        ["kernel.policy", "10/20", "0/4", "41.7"],
        ["bascule", "3/4", "0/0", "75.0"],
        ["gabp", "9/10", "0/0", "90.0"],
        ["kernel", "10/10", "4/4", "100.0"],
        ["wire", "0/0", "0/0", "100.0"],
        ["all", "32/44", "4/8", "69.2"],
    ]
