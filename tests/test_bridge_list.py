"""The list of bridges, the manifest, and rows that cannot be written wrongly."""

import sqlite3

import pytest

from bascule.bridge_list import BRIDGES, presets_of, rows_of, tables_of
from bascule.kernel.bridge import Bridge, Port, Ports
from bascule.kernel.declared import Declared
from bascule.kernel.journal_ports import Batch
from bascule.kernel.policy.presets import NAMES
from bascule.kernel.rows import Acts, Changes, Consent, Effect, Nothing, Operation, Reads, Record, Shape
from bascule.stores.schema import TABLES, StoreUnusable
from bascule.stores.sqlite import SqliteStore
from bascule.surfaces.mcp.tools import tools_of, toolsets_of

READ = Reads[Nothing, list[str]]("toy.read", "For these tests.")
CHANGE = Changes[Nothing, str | None]("toy.change", "For these tests.", effect=Effect.WRITE)


class Toy(Declared):
    name = "toy"
    rows = (READ, CHANGE)


def read(call, params):
    return []


# -- rows --


def test_a_row_knows_its_params_and_result_also_where_they_are_no_class():
    assert (READ.params, READ.result) == (Nothing, list[str])
    assert CHANGE.result == str | None


def test_a_row_without_types_says_how_to_write_it():
    with pytest.raises(TypeError, match=r"toy\.bare does not say its params"):
        _ = Reads("toy.bare", "For these tests.").params


@pytest.mark.parametrize("row", rows_of(), ids=lambda row: row.name)
def test_no_row_spends_a_grant_without_a_record_and_no_operation_has_a_door(row):
    assert row.consent is not Consent.HOLD or row.record is not Record.NONE
    inside = row.shape is Shape.OPERATION
    assert (row.consent is Consent.PAUSE) <= inside
    assert inside <= (row.routes == () and not hasattr(row, "bind"))


def test_what_would_be_wrong_cannot_be_written():
    with pytest.raises(TypeError):
        Reads[Nothing, str]("toy.x", "For these tests.", asks=True)
    with pytest.raises(TypeError):
        Changes[Nothing, str]("toy.x", "For these tests.", effect=Effect.WRITE, behind=True)
    with pytest.raises(TypeError):
        Operation[Nothing, str]("toy.x", "For these tests.", "POST", effect=Effect.WRITE)
    with pytest.raises(TypeError):
        Acts[Nothing, str]("toy.x", "For these tests.", effect=Effect.WRITE).bind(read, abandon=read)


# -- the manifest --


def test_every_declared_method_needs_a_handler():
    with pytest.raises(ValueError, match=r"toy: declared methods and handlers differ: \['toy.change'\]"):
        Bridge(declared=Toy(), service=None, methods=[READ.bind(read)])


def test_no_handler_can_be_bound_that_is_not_declared():
    stray = Reads[Nothing, str]("toy.stray", "For these tests.").bind(read)
    methods = [READ.bind(read), CHANGE.bind(read), stray]
    with pytest.raises(ValueError, match=r"\['toy.stray'\]"):
        Bridge(declared=Toy(), service=None, methods=methods)


def test_a_port_that_nobody_provides_is_named():
    ports = Ports([Port("first").provided_by(1)])
    with pytest.raises(LookupError, match="'second'"):
        ports.need(Port("second"))


def test_a_port_is_provided_once():
    port = Port("first")
    with pytest.raises(ValueError, match="provided already"):
        Ports([port.provided_by(1), port.provided_by(2)])


# -- the list --


def test_names_of_methods_routes_and_tables_are_each_declared_once():
    for names in (
        [row.name for row in rows_of()],
        [(route.verb, route.path) for bridge in BRIDGES for route in bridge.routes],
        tables_of(),
        [each.name for each in toolsets_of()],
        [tool.name for tool in tools_of(toolsets_of())],
    ):
        assert len(names) == len(set(names))


def test_the_bridges_declare_every_table_of_the_store_but_the_journals():
    assert set(TABLES) - set(tables_of()) == {"segments", "begun"}


def test_every_rule_of_a_bridge_belongs_to_a_preset():
    assert {name for bridge in BRIDGES for name in bridge.rules()} <= set(NAMES)
    assert list(presets_of()) == list(NAMES)


# -- tables --


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "b.db")


def opened(path, *tables):
    store = SqliteStore(path, durability="relaxed", tables=tables)
    store.close()


def names(path):
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()


def test_a_declared_table_is_made_and_stays_when_nobody_declares_it(path):
    opened(path)
    opened(path, "marks")
    opened(path)
    assert names(path) == {*TABLES, "marks", "ledger"}


def test_a_table_nobody_declares_is_refused_where_a_declared_one_is_missing(path):
    """A flipped bit in a name looks like that, and an empty table in its place would be a silent loss."""
    opened(path, "marks")
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE marks RENAME TO larks")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnusable, match="its schema is not ours"):
        opened(path, "marks")
    assert "marks" not in names(path)


def test_a_table_of_another_form_is_refused(path):
    opened(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE marks (key TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnusable, match="its schema is not ours"):
        opened(path)


def test_a_table_that_is_not_declared_cannot_be_read(path):
    store = SqliteStore(path, durability="relaxed")
    with pytest.raises(ValueError, match="its bridge does not declare it"):
        list(store.load("marks", Batch))
    store.close()


@pytest.mark.parametrize("name", ["drop table", "Marks", "m1", ""])
def test_a_table_has_a_plain_name(path, name):
    with pytest.raises(ValueError, match="cannot be the name of a table"):
        SqliteStore(path, tables=[name])
