"""The order of changes, and the summary that names the most important ones."""

from __future__ import annotations

from git_envhist.diff.facts import fact_rows, fact_words, facts_from_values, row_cells
from git_envhist.diff.importance import by_importance
from git_envhist.diff.required_packages import assign_roles
from git_envhist.diff.summary import summarize, with_ascii_signs, with_minus_signs
from git_envhist.model import ChangeCount, Fact, FactChange, Role

KINDS = {"pip": "packages", "npm": "packages", "sqlite": "databases", "env": "env"}
LIST = [
    Fact("declared", "package.json/.", "list", by="npm"),
    Fact("declared", "package.json/next", "asked=15.5.4", by="npm"),
    Fact("declared", "package.json/react", "asked=^19", by="npm"),
    Fact("declared", "package.json/react-dom", "asked=^19", by="npm"),
    Fact("declared", "package.json/eslint-config-next", "maybe=", by="npm"),
]
TOP, NESTED = "node_modules", "node_modules/@isaacs/cliui/node_modules"


def npm(name: str, before: str | None, after: str | None, place: str = TOP) -> FactChange:
    return FactChange("npm", f"{place}/{name}", before, after)


def upgrade() -> tuple[FactChange, ...]:
    changes = [
        npm("@img/colour", None, "1.1.0"),
        npm("fast-glob", None, "3.3.1"),
        npm("scheduler", "0.23.2", "0.27.0"),
        npm("react-dom", "18.3.1", "19.2.0"),
        npm("react", "18.3.1", "19.2.0"),
        npm("next", "14.2.33", "15.5.4"),
        npm("eslint-config-next", "14.2.33", "15.5.4"),
        npm("busboy", "1.6.0", None),
        *(npm(f"n{number}", "1.0.0", None, NESTED) for number in range(5)),
    ]
    return assign_roles(changes, LIST)


def test_summary_names_direct_dependencies_and_counts_the_rest_of_an_upgrade() -> None:
    line = summarize(upgrade(), ChangeCount(10, 4, 6), KINDS)
    assert line == "npm: next 14.2.33 → 15.5.4, react 18.3.1 → 19.2.0, +2 ~3 −6 more · 20 files"


def test_roles_follow_the_list_and_the_place() -> None:
    roles = {change.key.rpartition("/")[2]: change.role for change in upgrade()}
    assert roles["next"] is roles["react"] is Role.DIRECT
    assert roles["eslint-config-next"] is Role.DEVELOPMENT
    assert roles["fast-glob"] is roles["scheduler"] is Role.TRANSITIVE
    assert roles["n0"] is Role.NESTED
    # A nested copy of a direct dependency is nested.
    (copy,) = assign_roles([npm("react", "17.0.0", "18.0.0", NESTED)], LIST)
    assert copy.role is Role.NESTED


def test_order_puts_changed_versions_first_and_major_before_minor() -> None:
    changes = [
        npm("added", None, "1.0.0"),
        npm("removed", "1.0.0", None),
        npm("a-patch", "1.0.0", "1.0.1"),
        npm("b-minor", "1.0.0", "1.1.0"),
        npm("c-zero", "0.1.0", "0.2.0"),
        npm("d-major", "1.0.0", "2.0.0"),
    ]
    names = [change.key.rpartition("/")[2] for change in by_importance(changes)]
    assert names == ["c-zero", "d-major", "b-minor", "a-patch", "added", "removed"]


def test_rows_count_nested_packages_in_one_cell() -> None:
    (row,) = fact_rows(upgrade(), tuple(KINDS))
    cells = row_cells(row, 4)
    assert [cell.split()[1] for cell in cells[:3]] == ["next", "react", "react-dom"]
    assert cells[3:] == ["+2 ~2 −1 more", "nested −5"]


def test_transitive_packages_are_named_when_nothing_else_changed() -> None:
    changes = assign_roles([npm("braces", "3.0.2", "3.0.3"), npm("n0", None, "1", NESTED)], LIST)
    assert summarize(changes, ChangeCount(0, 2), KINDS) == "npm: braces 3.0.2 → 3.0.3, +1 more · 2 files"
    assert summarize(changes[1:], ChangeCount(1), KINDS) == "npm: +1 nested · 1 file"


def test_unlisted_package_is_named_before_its_dependencies() -> None:
    roots = [*LIST, Fact("declared", f"{TOP}/pg", "root=", by="npm")]
    changes = assign_roles([npm("buffer-writer", None, "1.0.0"), npm("pg", None, "8.16.0")], roots)
    assert summarize(changes, ChangeCount(9), KINDS) == "npm: +pg 8.16.0, +1 more · 9 files"


def test_json_keeps_roles_so_that_every_view_has_the_same_order() -> None:
    values = [
        {"probe": one.probe, "key": one.key, "before": one.before, "after": one.after, "role": one.role.value}
        for one in upgrade()
    ]
    assert fact_rows(facts_from_values(values), ()) == fact_rows(
        [FactChange(one.probe, one.key, one.before, one.after, role=one.role) for one in upgrade()], ()
    )


def test_lost_rows_come_before_a_migration() -> None:
    changes = [
        FactChange("sqlite", "db.sqlite3/migration blog 0007_trim", None, "applied"),
        FactChange("sqlite", "db.sqlite3/users", "3 rows (id INTEGER)", "9 rows (id INTEGER)"),
        FactChange("sqlite", "db.sqlite3/posts_post", "120 rows (id INTEGER)", "50 rows (id INTEGER)"),
    ]
    line = summarize(changes, ChangeCount(0, 1), KINDS)
    assert line.startswith("sqlite: posts_post 120 → 50 rows, +migration blog 0007_trim applied, ~1 more")


def test_tables_of_a_framework_come_after_the_users_tables() -> None:
    changes = [
        FactChange("sqlite", "db.sqlite3/auth_permission", "32 rows (id INTEGER)", "28 rows (id INTEGER)"),
        FactChange("sqlite", "db.sqlite3/django_content_type", "8 rows (id INTEGER)", "7 rows (id INTEGER)"),
        FactChange("sqlite", "db.sqlite3/tags", "1 rows (id INTEGER)", "2 rows (id INTEGER)"),
        FactChange("sqlite", "db.sqlite3/posts_post", "50 rows (id INTEGER)", "120 rows (id INTEGER)"),
    ]
    line = summarize(changes, ChangeCount(0, 1), KINDS)
    assert line.startswith("sqlite: posts_post 50 → 120 rows, tags 1 → 2 rows, ~2 more")


def test_restored_rows_come_before_an_undone_migration() -> None:
    changes = [
        FactChange("sqlite", "db.sqlite3/migration posts 0002_tag", "applied", None),
        FactChange("sqlite", "db.sqlite3/posts_post", "50 rows (id INTEGER)", "120 rows (id INTEGER)"),
    ]
    line = summarize(changes, ChangeCount(0, 1), KINDS)
    assert line.startswith("sqlite: posts_post 50 → 120 rows, −migration posts 0002_tag")


def test_dropped_table_comes_before_lost_rows_of_a_smaller_one() -> None:
    changes = [
        FactChange("sqlite", "db/posts", "120 rows (id INTEGER)", "50 rows (id INTEGER)"),
        FactChange("sqlite", "db/orders", "900 rows (id INTEGER)", None),
    ]
    assert fact_words(by_importance(changes)[0]) == "table orders (1 column, 900 rows)"


def test_variables_have_signs() -> None:
    changes = [
        FactChange("env", ".env.local/STRIPE_SECRET_KEY", "***", None),
        FactChange("env", ".env.local/NEW", None, "***"),
    ]
    assert summarize(changes, ChangeCount(), KINDS) == ".env.local: +NEW, −STRIPE_SECRET_KEY"
    assert summarize(changes, ChangeCount(), KINDS, names=False) == ".env.local: +1 −1 variables"
    assert summarize(changes[:1], ChangeCount(), KINDS, names=False) == ".env.local: −1 variable"


def test_minus_signs_are_ascii_for_programs_and_converted_back() -> None:
    line = "npm: −left-pad 1.0.0, +6 −32 more · 4 files"
    assert with_ascii_signs(line) == "npm: -left-pad 1.0.0, +6 -32 more · 4 files"
    assert with_minus_signs(with_ascii_signs(line)) == line
    assert with_ascii_signs("a file named x−y") == "a file named x−y"
