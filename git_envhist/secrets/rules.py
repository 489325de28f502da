"""Decide which files are secret: by name, by configuration, and by content.

`SECRET_NAMES` and the tables after it list the names; `docs/internals/security.md` shows the same tables (a test
compares the two). `is_secret_name` matches them, and judges the name of a copy (`.env.bak`) as its original's.
`SecretRules` adds `envhist.secret`, encrypting filters and the content: private keys, tokens, secret settings.

The name matcher runs for every new path, 100,000 times in a first capture. It checks the last component first: sets
of whole names and of suffixes, then one expression for the rest. Rules about directories are evaluated once per
directory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import NamedTuple

from git_envhist.lazy import once
from git_envhist.paths import join
from git_envhist.secrets.tokens import MASK, SCAN_LIMIT, find_tokens, mask_tokens

# Private keys recognized by their first bytes, under any name: DER, key stores, password databases.

STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x03\xd9\xa2\x9a", b"openssh-key-v1\0")
"""Java's two stores, KeePass, and OpenSSH's form without armor."""

_LENGTH = rb"(?:[\x00-\x7f]|\x81[\x00-\xff]|\x82[\x00-\xff]{2})"
_DER = (
    rb"0" + _LENGTH + rb"(?:"
    # PKCS#1 and DSA: version 0, then a large number. PKCS#8: version 0 or 1, then the algorithm, then the key.
    rb"\x02\x01\x00\x02(?:\x81[\x00-\xff]|\x82[\x00-\xff]{2}|[\x10-\x7f])"
    rb"|\x02\x01[\x00\x01]0(?:[\x05-\x7f]|\x82[\x00-\xff]{2})\x06[\x03-\x0b]"
    # SEC 1: version 1, then 28 to 66 bytes.
    rb"|\x02\x01\x01\x04[\x1c-\x42]"
    # PKCS#8, encrypted: the algorithm begins with PKCS#5 or PKCS#12. PKCS#12: version 3, then content.
    rb"|0[\x0b-\x7f]\x06[\x09-\x0b]\x2a\x86\x48\x86\xf7\x0d\x01(?:\x05|\x0c)"
    rb"|\x02\x01\x030)"
)


def is_key_material(data: bytes) -> bool:
    """Return whether some bytes are a private key or a key store."""
    if data[:1] == b"0":
        return _der().match(data) is not None
    return data.startswith(STORES)


@cache
def _der() -> re.Pattern[bytes]:
    return re.compile(_DER, re.DOTALL)


BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
Matches = Callable[[bytes], bool]


def scans_content(directory: bytes) -> bool:
    """Return whether the files directly in a directory are searched for tokens; called once per directory."""

    return not is_package_directory(directory)


class SecretRules:
    """The rules of one environment: the built-in ones, `envhist.secret` and encrypting filters."""

    __slots__ = ("_excluded", "_extra", "_named")

    def __init__(self, extra: Matches | None = None, excluded: Matches | None = None) -> None:
        self._extra = extra
        self._excluded = excluded
        self._named: Matches | None = None

    def by_name(self, path: bytes) -> bool:
        """Return whether the file at a path is secret, whatever its content."""
        named = self._named or self._load()
        if self._extra is None and self._excluded is None:
            return named(path)
        if self.excludes(path):
            return False
        return named(path) or (self._extra is not None and self._extra(path))

    def names_in(self, directory: bytes) -> Matches:
        """Return a test for the names of the files directly in a directory."""
        if self._extra is not None or self._excluded is not None:
            return lambda name: self.by_name(join(directory, name))

        return secret_names_in(directory)

    def excludes(self, path: bytes) -> bool:
        """Return whether the user declared the file at a path not secret (`envhist.secret = !<pattern>`)."""
        return self._excluded is not None and self._excluded(path)

    def scans_content(self, directory: bytes) -> bool:
        """Return whether the files directly in a directory are searched for tokens; called once per directory."""
        return scans_content(directory)

    def by_content(self, path: bytes, data: bytes) -> bool:
        """Return whether the content of the file at a path is secret."""
        return _has_secret_content(path, data) and not self.excludes(path)

    def _load(self) -> Matches:

        self._named = is_secret_name
        return is_secret_name


def mask_program(path: bytes, data: bytes) -> bytes | None:
    """Return the text of a sealed program or document with masked secrets, or None if it cannot be masked.

    The user sees a diff of this text. A file that is secret by its name, or not text, is shown only with `--reveal`.
    """
    from git_envhist.secrets.setting_values import (
        mask_secret_literals,  # loaded late: only sealed files need it
    )

    if (
        not is_program_name(path)
        or is_secret_name(path)
        or b"\0" in data
        or not _has_secret_content(path, data)
    ):
        return None
    masked = mask_secret_literals(mask_tokens(data), MASK)
    return None if _has_secret_content(path, masked) else masked


def _has_secret_content(path: bytes, data: bytes) -> bool:
    from git_envhist.secrets.setting_values import (
        holds_secret_setting,  # loaded late: most captures read no file
    )

    if is_key_material(data) or (b"PRIVATE KEY" in data and is_key_file(path)):
        return True
    if len(data) > SCAN_LIMIT:
        return False
    encoding = BOMS.get(data[:2])
    if encoding is not None:
        data = data.decode(encoding, "replace").encode()
    # Data with a NUL byte is not text but compressed, compiled or a database; these are not checked.
    if b"\0" in data:
        return False
    return bool(find_tokens(data)) or holds_secret_setting(data, program=is_program_name(path))


Globs = tuple[str, ...]

SECRET_NAMES: dict[str, Globs] = {
    "environment variables": (
        ".env", ".env.*", ".env-*", ".env_*", "*.env", ".envrc", ".envrc.*", ".dev.vars", ".dev.vars.*", ".renviron",
        ".flaskenv", "dotenv", "dotenv.*", "env.production", "env.prod", "env.staging", "env.stage",
        "env.development", "env.dev", "env.local", "env.test", "env.ci", "env.docker", "env.live", "env.qa",
        "env.uat", "env.sh", "env.old", "env.bak", "env.backup", "setenv.sh", "cypress.env.json",
        "http-client.private.env.json", "*.postman_environment.json",
    ),
    "files of secrets": (
        "secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml", "secrets.ini", "secrets.properties",
        "secret.yml", "secret.yaml", "secret.json", "secret.toml", ".secret", ".secrets", ".secrets.*",
        "credentials", ".credentials", "credentials.json", ".credentials.json", "credentials.yml",
        "credentials.yaml", "credentials.toml", "credentials.ini", "credentials.csv", "accesskeys.csv",
        "*_accesskeys.csv", "client_secret.json", "client_secret_*.json", "client_secrets.json",
        "master.key", "config/credentials/*.key", "jupyter_cookie_secret", "vault.yml", "vault.yaml", "vault.json",
        ".smbcredentials", ".cifs_credentials", ".htdigest", ".token", ".api_key", ".api-key", ".apikey",
        ".password", ".passwd",
    ),
    "settings of applications": (
        "local.settings.json", "appsettings.*.json", "local_settings.py", "settings_local.py", "settings/local.py",
        "localsettings.php", "settings.local.php", "wp-config.php", "wp-config.*.php", "configuration.php",
        "config.inc.php", "database.yml", "database.yaml", "database.json", "mongoid.yml", "cable.yml",
        "parameters.yml", "parameters.yaml", "parameters_*.yml", "connectionstrings.config",
        "connectionstrings.json", "google-services.json", "googleservice-info.plist", "application-local.yml",
        "application-local.yaml", "application-local.properties", "application-prod.yml", "application-prod.yaml",
        "application-prod.properties", "application-production.yml", "application-production.yaml",
        "application-production.properties", "config/local.json", "config/local.yml", "config/local.yaml",
        "config.local.json", "config.local.yml", "config.local.yaml", "config.local.toml", "config.local.php",
        "docker-compose.override.yml", "docker-compose.override.yaml", "compose.override.yml",
        "compose.override.yaml",
    ),
    "registries and version control": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", "nuget.config", "gradle.properties", "key.properties",
        "keystore.properties", "signing.properties", "local.properties", "pip.conf", "pip.ini", ".pypirc",
        "pypoetry/auth.toml", ".condarc", ".netrc", "_netrc", ".authinfo", ".git-credentials", "git/credentials",
        ".gitcookies", ".hgrc", ".hg/hgrc", ".cargo/credentials", "gh/hosts.yml", "gh/hosts.yaml",
        "glab-cli/config.yml", ".config/hub", "composer/auth.json", ".composer/auth.json", ".m2/settings.xml",
        ".m2/settings-security.xml", "settings-security.xml", "ivysettings.xml", ".sbt/credentials",
        ".ivy2/.credentials", ".lein/credentials.clj", ".gem/credentials", ".bundle/config", ".hex/hex.config",
        "pnpm/rc", ".jfrog/jfrog-cli.conf*", ".sentryclirc", "sentry.properties", "github-copilot/hosts.json",
        "github-copilot/apps.json",
    ),
    "clouds, containers and clusters": (
        ".aws/credentials", ".aws/cli/cache/*.json", ".aws/sso/cache/*.json", ".boto", ".s3cfg", ".passwd-s3fs",
        ".ossutilconfig", ".aliyun/config.json", ".mc/config.json", "application_default_credentials.json",
        "gcloud/credentials.db", "gcloud/access_tokens.db", "gcloud/legacy_credentials/*/adc.json",
        "service-account*.json", "service_account*.json", "serviceaccount*.json", "*-service-account.json",
        "*_service_account.json", ".azure/accesstokens.json", ".azure/msal_token_cache.*",
        ".azure/service_principal_entries.*", ".oci/config", "doctl/config.yaml", "hcloud/cli.toml",
        "scw/config.yaml", ".linode-cli", "linode-cli", ".bluemix/config.json", ".fly/config.yml",
        ".netlify/config.json", "com.vercel.cli/auth.json", ".railway/config.json", ".supabase/access-token",
        "configstore/*.json", ".cloudflared/*.json", ".databrickscfg", ".snowsql/config",
        ".snowflake/connections.toml", ".wrangler/config/default.toml", ".docker/config.json", ".dockercfg",
        ".dockerconfigjson", "containers/auth.json", "kubeconfig", "kubeconfig.yaml", "kubeconfig.yml",
        "kubeconfig.json", "kubeconfig-*", "kubeconfig_*", "*.kubeconfig", "*-kubeconfig.yaml", "*-kubeconfig.yml",
        ".kube/config*", "k3s.yaml", "rclone.conf", "ngrok.yml", ".kaggle/kaggle.json", "huggingface/token",
        "huggingface/stored_tokens", ".codex/auth.json", ".gemini/oauth_creds.json", ".claude.json",
        "claude_desktop_config.json", "io.datasette.llm/keys.json",
    ),
    "infrastructure": (
        "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json", "tfplan", "tfplan.*", "*.tfplan", ".terraformrc",
        "terraform.rc", "credentials.tfrc.json", ".vault-token", ".vault_pass", ".vault-pass", ".vault_pass.*",
        ".vault-pass.*", ".vault_password", ".vault-password", "vault_pass.txt", "vault-password.txt",
        "encrypted_data_bag_secret", ".vagrant/machines/*/*/private_key", "sops/age/keys.txt", "cloud-init.yaml",
        "user-data",
    ),
    "databases, mail and web servers": (
        ".pgpass", "pgpass.conf", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".htpasswd",
        ".dbt/profiles.yml", ".msmtprc", ".esmtprc", ".fetchmailrc", ".mbsyncrc", ".offlineimaprc", ".muttrc",
        ".fetchmailids", "*.ovpn", "wg?.conf", "wpa_supplicant.conf", "*.nmconnection", ".vnc/passwd", "web.config",
        "tomcat-users.xml", "credentials-config.json", "redis.conf",
    ),
    "editors and file transfer": (
        ".vscode/sftp.json", "sftp-config.json", "sftp.json", ".ftpconfig", ".ftppass", ".remote-sync.json",
        ".idea/datasources.local.xml", ".idea/webservers.xml", ".idea/deployment.xml", "sitemanager.xml",
        "recentservers.xml", "filezilla.xml", "winscp.ini", "deployment-config.json",
    ),
    "sessions of browsers": (
        "playwright/.auth/*", ".auth/*.json", "storagestate.json", "storage_state.json", "storage-state.json",
        "auth-state.json", "authstate.json", "cookies.txt", "cookies.json", "cookies.sqlite", "logins.json",
        "key4.db", "login data", "*.har",
    ),
    "private keys": (
        "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "ssh_host_*_key", "*.p12", "*.pfx", "*.pkcs12", "*.jks",
        "*.jceks", "*.bks", "*.keystore", "*.ppk", "*.kdbx", "*.kdb", "*.agekey", "*.snk", "*.keychain",
        "*.keychain-db", "*.jwk", "secring.gpg", ".gnupg/private-keys-v1.d/*.key",
    ),
    "histories": (
        ".*_history", ".zhistory", ".histfile", "fish_history", "consolehost_history.txt", ".dbshell",
        "mongosh_repl_history", ".lesshst", ".viminfo", ".nviminfo", "_viminfo", "main.shada",
        "profile_*/history.sqlite*", "atuin/history.db*", "pgcli/history", ".pgcli/history", "nushell/history.*",
        ".*-history", ".bash_sessions/*", ".zsh_sessions/*", "repl_history.jl",
    ),
}  # fmt: skip
"""Secret in any directory, also among installed packages. `?` matches one character."""

TOP_NAMES: Globs = ("auth.json",)
"""Secret only at the top of the environment (Composer's); elsewhere it is often a translation."""

SECRET_WORDS: Globs = (
    "secret", "credential", "passwd", "password", "passphrase", "api_key", "api-key", "apikey", "access_key",
    "access-key", "accesskey", "private_key", "private-key", "privatekey", "auth_token", "auth-token",
)  # fmt: skip
"""A name with one of these words is secret if its ending is in `DATA_ENDINGS`."""

DATA_ENDINGS: Globs = (
    "", "yml", "yaml", "json", "json5", "jsonc", "toml", "ini", "properties", "conf", "cfg", "config", "txt", "text",
    "xml", "csv", "tsv", "plist", "env", "sh", "b64", "base64", "dat", "data", "bin", "hex", "key", "list", "store",
    "tf", "hcl", "xlsx", "ods", "docx", "sql", "db",
)  # fmt: skip
"""Endings of data, as opposed to programs and documents; the first is no ending."""

SECRET_DIRECTORIES: Globs = (
    "secrets", ".secrets", ".secret", ".credentials", ".envs", ".ssh", ".gnupg", ".password-store", ".vault",
)  # fmt: skip
"""Everything below one of these is secret, except programs, documents and public names."""

PROGRAM_ENDINGS: Globs = (
    "py", "pyi", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "vue", "svelte", "go", "rs", "java", "kt", "kts",
    "scala", "groovy", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "mm", "swift", "cs", "fs", "vb", "rb", "php",
    "pl", "pm", "lua", "r", "jl", "ex", "exs", "erl", "hs", "ml", "clj", "cljs", "elm", "dart", "zig", "nim", "css",
    "scss", "sass", "less", "html", "htm", "md", "markdown", "rst", "adoc", "tex", "svg", "ipynb", "proto", "graphql",
    "map", "wasm",
)  # fmt: skip
"""Endings of programs and documents: a setting in them makes the file secret only if its value is long and random."""

PUBLIC_NAMES: Globs = (
    "readme", "readme.*", ".gitignore", ".gitkeep", ".keep", ".gitattributes", "known_hosts", "known_hosts.old",
    "authorized_keys", "pubring.*", "trustdb.gpg", "*.enc.*", "*.sops.*",
)  # fmt: skip
"""Public or already encrypted: neither a word nor a directory makes these secret."""

KEY_FILES: Globs = ("*.pem", "*.key", "*.p8", "*.priv", "*.asc")
"""Secret only if the content contains `PRIVATE KEY`: most of them are certificates."""

EXAMPLE_WORDS: Globs = (
    "example", "examples", "sample", "template", "tmpl", "tpl", "j2", "dist", "default", "defaults", "schema",
)  # fmt: skip
"""A name that ends in one of these words (`.env.example`, `sample.env`) is meant to be shared."""

COPY_ENDINGS: Globs = (
    "bak", "backup", "back", "bkp", "bk", "old", "orig", "original", "save", "saved", "copy", "prev", "previous",
    "tmp", "temp", "new", "rej", "disabled", "deleted", "removed", "unused", "archive", "mine", "theirs", "swp",
    "kate-swp", "dpkg-old", "dpkg-new", "dpkg-tmp", "dpkg-bak", "rpmsave", "rpmnew", "rpmorig", "ucf-old", "ucf-new",
    "pacsave", "pacnew", "pacorig", "decrypted", "dec", "plain", "plaintext", "gz", "bz2", "xz", "zst", "lz4", "zip",
    "7z", "rar", "tgz", "tar",
)  # fmt: skip
"""Removed from a name before it is matched: after `.`, `-`, `_` or a space, with or without a number, also before the
ending.
"""

DERIVED_DIRECTORIES: Globs = (
    "pods", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".terraform", ".m2/repository",
    ".gradle/caches", ".git/objects", ".git/lfs",
)  # fmt: skip
"""Directories of downloaded or derived files, besides those of the package managers in `probes`: below them names are
matched, contents are not searched."""


# Names of copies: remove what editors, backups and users add to a name. `.env.old`, `#.env#`, `..env.swp`, `.env
# (copy)`, `prod.tfvars~`, `secrets-backup.yml` and `Copy of release.jks` are as secret as their originals.

ROUNDS = 4
"""Copies of copies: `.env.bak.old~`."""

NUMBER = rb"(?:[0-9][0-9tz:_-]*)"
PREFIXES = (
    rb"copy of |copy \([0-9]+\) of |backup of |kopie von |copie de |copia de |~\$|\._|(?:old|bak|backup)[._-]"
)
JETBRAINS = rb"___jb_(?:tmp|old|bak)___"
MERGES = rb"_(?:base|local|remote|backup)_[0-9]+"
_DIGITS = b"0123456789"
_SEPARATORS = bytes.maketrans(b"_- ()~#$%", b".........")
_SIGNS = frozenset(
    (b"", *(part.encode().translate(None, _DIGITS) for word in COPY_ENDINGS for part in word.split("-")))
)
_FIRST = frozenset((b"copy", b"backup", b"kopie", b"copie", b"copia", b"old", b"bak"))
SYNCED = rb"\.sync-conflict-[\w-]+|[ _-]?\([^()]*(?:conflict|conflit)[^()]*\)"


def original_names(name: bytes) -> Iterator[bytes]:
    """Yield the names, in lower case, of which a name in lower case may be a copy."""
    seen = {name}
    turn = [name]
    for _ in range(ROUNDS):
        turn = [one for whole in turn for one in _without_addition(whole) if one and one not in seen]
        if not turn:
            return
        seen.update(turn)
        yield from turn


def parts_of(name: bytes) -> list[bytes]:
    """Return the parts of a name between dots, dashes, spaces and brackets, without digits."""
    return name.translate(_SEPARATORS, _DIGITS).split(b".")


def parts_of_copy(name: bytes) -> list[bytes]:
    """Return the parts of a name that may be a copy's, else nothing. Takes 0.2 µs, without a pattern."""
    parts = parts_of(name)
    # Only names with an empty part can be copies: digits, brackets and tildes leave one, and so does a leading dot.
    may_be = not _SIGNS.isdisjoint(parts[1:]) or parts[0] in _FIRST or (name[:1] == b"." and len(parts) > 2)
    return parts if may_be else []


def _without_addition(name: bytes) -> Iterator[bytes]:
    wrapped = _wrapped().fullmatch(name)
    if wrapped is not None:
        inner = next(group for group in wrapped.groups() if group is not None)
        yield inner
        # An editor adds a dot before the name, or keeps an existing one.
        yield inner.removeprefix(b".")
    at_end = _ending().search(name)
    if at_end is not None:
        yield name[: at_end.start()]
    stem, dot, ending = name.rpartition(b".")
    if dot and stem:
        found = _ending().search(stem)
        if found is not None:
            yield stem[: found.start()] + dot + ending
    prefix = _prefix().match(name)
    if prefix is not None:
        yield name[prefix.end() :]


# Compiled when a capture meets the first such name.
@cache
def _ending() -> re.Pattern[bytes]:
    words = b"|".join(re.escape(word.encode()) for word in COPY_ENDINGS)
    return re.compile(
        rb"(?:~+|\.~[0-9]+~|(?: -)?[ ._-](?:" + words + rb")(?:[ ._-]?" + NUMBER + rb")?|[ ._-]" + NUMBER
        + rb"|(?: -)? ?\((?:copy|kopie|copie|copia)?(?: ?[0-9]+)?\)|(?: -)? (?:copy|kopie)(?: \([0-9]+\))?|"
        + JETBRAINS + b"|" + MERGES + b"|" + SYNCED + rb")\Z"
    )  # fmt: skip


@cache
def _wrapped() -> re.Pattern[bytes]:
    # Emacs, its locks, LibreOffice's locks, vim's swap and undo files, temporary files of rsync and sed.
    return re.compile(
        rb"#(.+)#|\.#(.+)|\.~lock\.(.+)#|\.?(.+)\.sw[a-px]|\.?(.+)\.un~|(\..+)\.(?=[a-z]*[0-9])[a-z0-9]{6,8}|%(.+)%",
        re.DOTALL,
    )


@cache
def _prefix() -> re.Pattern[bytes]:
    return re.compile(PREFIXES)


def is_secret_name(path: bytes) -> bool:
    """Return whether a file is secret by its name alone; a copy is judged by its original's name."""
    slash = path.rfind(b"/")
    return secret_names_in(path[: max(slash, 0)])(path[slash + 1 :])


def secret_names_in(directory: bytes) -> Callable[[bytes], bool]:
    """Return the same test for the names in one directory; the rules of the directory are evaluated once."""
    return partial(_is_secret_in, _place(directory))


# Most names of a large environment occur in many directories, and most directories add the same rules.
@lru_cache(maxsize=2048)
def _is_secret_in(place: _Place, name: bytes) -> bool:
    name = name.lower()
    if _is_secret(name, place):
        return True
    parts = parts_of_copy(name)
    return (
        bool(parts)
        and _may_be_of_secret(name, parts)
        and any(_is_secret(one, place) for one in original_names(name))
    )


def is_key_file(path: bytes) -> bool:
    """Return whether a file of this name is secret if it contains a private key."""
    return _KEY_FILES.match(path[path.rfind(b"/") + 1 :].lower())


def is_program_name(path: bytes) -> bool:
    """Return whether a name is a program's or a document's, in which settings are ordinary text."""
    return _ending_of(path[path.rfind(b"/") + 1 :].lower()) in _PROGRAMS


def is_secret_directory(path: bytes) -> bool:
    """Return whether the files below a directory are secret."""
    return _place(path).secret


def is_package_directory(directory: bytes) -> bool:
    """Return whether a directory is one of downloaded or derived files, or below one."""
    return _place(directory).packages


class _Place(NamedTuple):
    """The rules that a directory adds for its files."""

    packages: bool
    secret: bool
    names: re.Pattern[bytes] | None
    """Names that are secret in this directory."""


@lru_cache(maxsize=256)
def _place(directory: bytes) -> _Place:
    lower = directory.lower()
    packages = _packages().search(lower) is not None and _git_directory().fullmatch(directory) is None
    secret = not packages and not _SECRET_PARTS.isdisjoint(lower.split(b"/"))
    names = None
    if not lower:
        names = re.compile(_any_of(TOP_NAMES), re.DOTALL)
    elif _some_directory().search(lower) is not None:
        names_here = [name for pattern, name in _directories() if pattern.search(lower) is not None]
        names = re.compile(_any_of(names_here), re.DOTALL)
    return _Place(packages, secret, names)


def _is_secret(name: bytes, place: _Place) -> bool:
    if _NAMES.match(name):
        return _example().fullmatch(name) is None
    if place.names is not None and place.names.fullmatch(name) is not None:
        return True
    if place.packages:
        return False
    if place.secret:
        is_secret = _ending_of(name) not in _PROGRAMS
    else:
        is_secret = _ending_of(name) in _DATA and _words().search(name) is not None
    return is_secret and _example().fullmatch(name) is None and not _PUBLIC.match(name)


def _may_be_of_secret(name: bytes, parts: list[bytes]) -> bool:
    """Return whether the original of a copy can be secret; cheaper than finding its name."""
    distinctive, beginnings = _of_copies()
    return (
        not distinctive.isdisjoint(parts)
        or name.startswith(beginnings)
        or (b"s" in name and _words().search(name) is not None)
    )


def _ending_of(name: bytes) -> bytes:
    # A leading dot is part of the name.
    dot = name.rfind(b".")
    return name[dot + 1 :] if dot > 0 else b""


class _NameTable:
    """Globs of single names, compiled for frequent matching."""

    def __init__(self, globs: Iterable[str]) -> None:
        globs = tuple(globs)
        endings = [
            glob for glob in globs if glob.startswith("*") and glob.count("*") == 1 and "?" not in glob
        ]
        suffixes = [glob for glob in endings if glob.startswith("*.") and glob.count(".") == 1]
        self._rest = [glob for glob in globs if ("*" in glob or "?" in glob) and glob not in endings]
        self._whole = frozenset(glob.encode() for glob in globs if "*" not in glob and "?" not in glob)
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
    parts = (re.escape(glob).replace(r"\*", "[^/]*").replace(r"\?", "[^/]").encode() for glob in globs)
    return b"(?:" + (b"|".join(parts) or b"(?!)") + b")"


_ALL = tuple(glob for globs in SECRET_NAMES.values() for glob in globs)
_NAMES = _NameTable(glob for glob in _ALL if "/" not in glob)
_KEY_FILES = _NameTable(KEY_FILES)
_PUBLIC = _NameTable(PUBLIC_NAMES)
_DATA = frozenset(ending.encode() for ending in DATA_ENDINGS)
_PROGRAMS = frozenset(ending.encode() for ending in PROGRAM_ENDINGS)
_SECRET_PARTS = frozenset(name.encode() for name in SECRET_DIRECTORIES)


def _distinctive_parts(glob: str) -> list[bytes]:
    """Return the parts that every match of a glob has, without those that are common in other names."""
    parts = [part for part in parts_of(glob.encode()) if part and b"*" not in part and b"?" not in part]
    return [part for part in parts if part not in _DATA and part not in _PROGRAMS] or parts


# Compiled on demand: most captures meet no new name.
@cache
def _some_directory() -> re.Pattern[bytes]:
    heads = sorted({glob.rpartition("/")[0] for glob in _ALL if "/" in glob})
    return re.compile(rb"(?:^|/)" + _any_of(heads) + rb"\Z")


@cache
def _directories() -> tuple[tuple[re.Pattern[bytes], str], ...]:
    split = [glob.rpartition("/") for glob in _ALL if "/" in glob]
    return tuple((re.compile(rb"(?:^|/)" + _any_of([head]) + rb"\Z"), name) for head, _, name in split)


@cache
def _of_copies() -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Return parts and beginnings; each secret name has at least one of them."""
    names = (*TOP_NAMES, *(glob.rpartition("/")[2] for glob in _ALL))
    distinctive = frozenset(part for name in names for part in _distinctive_parts(name))
    return distinctive, tuple(name.partition("*")[0].encode() for name in names if name.find("*") > 3)


@cache
def _example() -> re.Pattern[bytes]:
    # `.env.example`, `.env.local.sample`, `sample.env`, `kubeconfig.example.yaml`; public keys; a bundler's type
    # declarations of variables.
    return re.compile(
        rb"(?:.*[._-])?"
        + _any_of(EXAMPLE_WORDS)
        + rb"(?:\.(?:env|tfvars|json|ya?ml|toml|ini))?|.*\.pub|\.env\.d\.ts",
        re.DOTALL,
    )


@cache
def _words() -> re.Pattern[bytes]:
    return re.compile(_any_of(SECRET_WORDS))


def unsearched_directories() -> Globs:
    """Return patterns of the directories below which contents are not searched."""
    from git_envhist.probes import downloads  # loaded late: many commands judge no path

    return (*downloads(), *DERIVED_DIRECTORIES)


@cache
def _packages() -> re.Pattern[bytes]:
    return re.compile(rb"(?:^|/)" + _any_of(unsearched_directories()) + rb"(?:/|$)")


@cache
def _git_directory() -> re.Pattern[bytes]:
    # The configuration of a cloned repository may contain the password of its remote, also in a package directory.
    return re.compile(rb"(?:.*/)?\.git(?:/modules/[^/]+)*", re.DOTALL)
