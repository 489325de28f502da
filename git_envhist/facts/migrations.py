"""The tables in which frameworks keep which migrations were applied, and how a row of them is called (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from git_envhist.facts.sqlitefile import Value

NAMED_BY: dict[str, tuple[tuple[str, ...], ...]] = {
    "django_migrations": (("app", "name"),),  # Django
    "schema_migrations": (("version",),),  # Rails, dbmate, golang-migrate
    "alembic_version": (("version_num",),),  # Alembic, Flask-Migrate
    "_prisma_migrations": (("migration_name",),),  # Prisma
    "knex_migrations": (("name",),),  # Knex
    "flyway_schema_history": (("version", "description"),),  # Flyway
    "migrations": (("migration",), ("name",)),  # Laravel; TypeORM
    "sequelizemeta": (("name",),),  # Sequelize
    "_sqlx_migrations": (("version", "description"),),  # SQLx
    "__efmigrationshistory": (("migrationid",),),  # Entity Framework
    "__diesel_schema_migrations": (("version",),),  # Diesel
    "__drizzle_migrations": (("hash",),),  # Drizzle
    "doctrine_migration_versions": (("version",),),  # Doctrine
    "goose_db_version": (("version_id",),),  # Goose
    "d1_migrations": (("name",),),  # Wrangler
    "kysely_migration": (("name",),),  # Kysely
    "mikro_orm_migrations": (("name",),),  # MikroORM
    "migratehistory": (("name",),),  # Peewee
    "phinxlog": (("version", "migration_name"),),  # Phinx, CakePHP
    "databasechangelog": (("id",),),  # Liquibase
}
"""By table, the columns that a migration is named by: the first that the table has."""
ONE_ROW = ("alembic_version",)
"""The one row tells where the database stands, and is replaced."""
UNDONE = {"_prisma_migrations": "rolled_back_at"}
DONE = {"flyway_schema_history": "success", "_sqlx_migrations": "success", "goose_db_version": "is_applied"}
LONGEST = 200


def is_of_migrations(table: str) -> bool:
    return table.lower() in NAMED_BY


def applied(table: str, rows: Iterable[Mapping[str, Value]]) -> Iterator[tuple[str, str]]:
    """(migration, state): those that a table says were applied; `version` and which, where it tells no more."""
    kind = table.lower()
    for row in rows:
        named = next((words for words in NAMED_BY[kind] if all(word in row for word in words)), ())
        name = ".".join(_text(row[word]) for word in named if row[word] is not None)
        if not name or row.get(UNDONE.get(kind, "")) is not None or not row.get(DONE.get(kind, ""), 1):
            continue
        if kind in ONE_ROW or "dirty" in row:
            yield "version", name + (" (dirty)" if row.get("dirty") else "")
        else:
            yield name, ""


def _text(value: Value) -> str:
    told = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return told[:LONGEST]
