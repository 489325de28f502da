"""Which names say that a file is secret: the table, told in the words of globs, and one matcher made of it.

The matcher is asked once for every new path, 100,000 times in a first capture, so it looks at the last component
first: sets of whole names and of suffixes, then one expression for the rest. `docs/security.md` shows the same
table, and a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from git_envhist.values import once

Globs = tuple[str, ...]

SECRET_NAMES: dict[str, Globs] = {
    "environment variables": (
        ".env", ".env.*", ".env-*", ".env_*", ".env~", "*.env", ".envrc", ".envrc.*", ".dev.vars", ".dev.vars.*",
        ".renviron",
    ),
    "files of secrets": (
        "secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml", "secrets.ini", "secrets.properties",
        "secret.yml", "secret.yaml", "secret.json", "secret.toml", ".secret", ".secrets", ".secrets.*",
        "credentials", ".credentials", "credentials.json", ".credentials.json", "credentials.yml",
        "credentials.yaml", "credentials.toml", "credentials.ini", "credentials.csv", "accesskeys.csv",
        "*_accesskeys.csv", "client_secret.json", "client_secret_*.json", "client_secrets.json",
        "master.key", "config/credentials/*.key", "wp-config.php", "jupyter_cookie_secret",
    ),
    "registries and version control": (
        ".npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", "git/credentials", ".cargo/credentials",
        "gh/hosts.yml", "gh/hosts.yaml", "glab-cli/config.yml", ".config/hub", "composer/auth.json",
        ".composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties",
        ".gem/credentials", ".sentryclirc", "sentry.properties",
    ),
    "clouds, containers and clusters": (
        ".aws/credentials", ".aws/cli/cache/*.json", ".aws/sso/cache/*.json", ".boto", ".s3cfg", ".passwd-s3fs",
        "application_default_credentials.json", "gcloud/credentials.db", "gcloud/access_tokens.db",
        "gcloud/legacy_credentials/*/adc.json", "service-account*.json", "service_account*.json",
        "serviceaccount*.json", "*-service-account.json", "*_service_account.json", ".azure/accesstokens.json",
        ".azure/msal_token_cache.*", ".azure/service_principal_entries.*", ".oci/config", "doctl/config.yaml",
        ".fly/config.yml", ".databrickscfg", ".wrangler/config/default.toml", ".docker/config.json", ".dockercfg",
        ".dockerconfigjson", "containers/auth.json", "kubeconfig", "kubeconfig.yaml", "kubeconfig.yml",
        "kubeconfig.json", "kubeconfig-*", "kubeconfig_*", "*.kubeconfig", "*-kubeconfig.yaml", "*-kubeconfig.yml",
        ".kube/config*", "rclone.conf", "ngrok.yml", ".kaggle/kaggle.json", "huggingface/token",
        "huggingface/stored_tokens", ".codex/auth.json",
    ),
    "infrastructure": (
        "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc",
        "credentials.tfrc.json", ".vault-token", ".vault_pass", ".vault-pass", ".vault_pass.*", ".vault-pass.*",
        ".vault_password", ".vault-password",
    ),
    "databases, mail and web servers": (
        ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".htpasswd", ".dbt/profiles.yml", ".msmtprc",
        ".fetchmailrc", ".mbsyncrc", ".fetchmailids",
    ),
    "private keys": (
        "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "ssh_host_*_key", "*.p12", "*.pfx", "*.pkcs12", "*.jks",
        "*.jceks", "*.bks", "*.keystore", "*.ppk", "*.kdbx", "*.kdb", "*.agekey", "secring.gpg",
        ".gnupg/private-keys-v1.d/*.key",
    ),
    "histories of shells": (
        ".bash_history", ".zsh_history", ".zhistory", ".sh_history", ".ash_history", ".ksh_history", ".histfile",
        "fish_history", "consolehost_history.txt", ".psql_history", ".mysql_history", ".mariadb_history",
        ".sqlite_history", ".dbshell", ".rediscli_history", ".mongo_history", "mongosh_repl_history",
        ".python_history", ".node_repl_history", ".irb_history", ".rhistory",
    ),
}  # fmt: skip

TOP_NAMES: Globs = ("auth.json",)
"""Secret at the top of the environment only (Composer's); elsewhere it is the name of many a translation."""

KEY_FILES: Globs = ("*.pem", "*.key", "*.p8", "*.priv", "*.asc")
"""Secret only where the content says `PRIVATE KEY`: most of them are certificates."""

EXAMPLE_WORDS: Globs = (
    "example", "examples", "sample", "template", "tmpl", "tpl", "j2", "dist", "default", "defaults", "schema",
)  # fmt: skip
"""A name that ends in one of these words (`.env.example`, `sample.env`) is meant to be shared."""

PACKAGE_DIRECTORIES: Globs = (
    "node_modules", "bower_components", "jspm_packages", "site-packages", "dist-packages", "vendor", "target",
    "pods", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pnpm-store", ".terraform",
    "go/pkg/mod", ".cargo/registry", ".rustup/toolchains", ".m2/repository", ".gradle/caches", ".npm/_cacache",
    ".yarn/cache", ".git/objects", ".git/lfs", "lib/python2.*", "lib/python3.*", "lib64/python3.*",
)  # fmt: skip
"""Directories of what was downloaded or derived: below them names are looked at, contents are not."""


def is_secret_name(path: bytes) -> bool:
    """Whether the name of a file alone says that it is secret."""
    slash = path.rfind(b"/")
    name = path[slash + 1 :].lower()
    if not _LAST_PARTS.match(name):
        return False
    if _NAMES.match(name):
        return _example().fullmatch(name) is None
    return _paths().fullmatch(path.lower()) is not None or (slash < 0 and name in _TOP_NAMES)


def is_key_file(path: bytes) -> bool:
    """Whether a file of this name is secret where it holds a private key."""
    return _KEY_FILES.match(path[path.rfind(b"/") + 1 :].lower())


def is_package_directory(directory: bytes) -> bool:
    """Whether a directory stands at or below one of downloaded or derived files."""
    return _packages().search(directory.lower()) is not None and _git_directory().fullmatch(directory) is None


class _NameTable:
    """Globs of single names, made ready to be asked often."""

    def __init__(self, globs: Iterable[str]) -> None:
        globs = tuple(globs)
        endings = [glob for glob in globs if glob.startswith("*") and glob.count("*") == 1]
        suffixes = [glob for glob in endings if glob.startswith("*.") and glob.count(".") == 1]
        self._rest = [glob for glob in globs if "*" in glob and glob not in endings]
        self._whole = frozenset(glob.encode() for glob in globs if "*" not in glob)
        self._suffixes = frozenset(glob[1:].encode() for glob in suffixes)
        self._endings = tuple(glob[1:].encode() for glob in endings if glob not in suffixes)

    @once
    def _others(self) -> re.Pattern[bytes]:
        return re.compile(_any_of(self._rest), re.DOTALL)

    def match(self, name: bytes) -> bool:
        return (
            name in self._whole
            or name[name.rfind(b".") :] in self._suffixes
            or name.endswith(self._endings)
            or self._others.fullmatch(name) is not None
        )


def _any_of(globs: Iterable[str]) -> bytes:
    parts = (rb"[^/]*".join(re.escape(part.encode()) for part in glob.split("*")) for glob in globs)
    return b"(?:" + (b"|".join(parts) or b"(?!)") + b")"


_ALL = tuple(glob for globs in SECRET_NAMES.values() for glob in globs)
_WITH_DIRECTORY = tuple(glob for glob in _ALL if "/" in glob)
_NAMES = _NameTable(glob for glob in _ALL if "/" not in glob)
_LAST_PARTS = _NameTable((*TOP_NAMES, *(glob.rpartition("/")[2] for glob in _ALL)))
_TOP_NAMES = frozenset(name.encode() for name in TOP_NAMES)
_KEY_FILES = _NameTable(KEY_FILES)


# Compiled when they are first asked for: most captures look at no new name.
@cache
def _paths() -> re.Pattern[bytes]:
    return re.compile(rb"(?:.*/)?" + _any_of(_WITH_DIRECTORY), re.DOTALL)


@cache
def _example() -> re.Pattern[bytes]:
    # `.env.example`, `.env.local.sample`, `sample.env`, `kubeconfig.example.yaml`; the public half of a key pair; the
    # types of a bundler's variables.
    return re.compile(
        rb"(?:.*[._-])?"
        + _any_of(EXAMPLE_WORDS)
        + rb"(?:\.(?:env|tfvars|json|ya?ml|toml|ini))?|.*\.pub|\.env\.d\.ts",
        re.DOTALL,
    )


@cache
def _packages() -> re.Pattern[bytes]:
    return re.compile(rb"(?:^|/)" + _any_of(PACKAGE_DIRECTORIES) + rb"(?:/|$)")


@cache
def _git_directory() -> re.Pattern[bytes]:
    # Wherever a repository was cloned to, its configuration is no package's: it may hold the password it was cloned
    # with.
    return re.compile(rb"(?:.*/)?\.git(?:/modules/[^/]+)*", re.DOTALL)
