"""The table of secret names: globs by group, and the words and directories that make other names secret.

`docs/security.md` shows the same table; a test compares the two. `secretnames` compiles it into one matcher.
"""

from __future__ import annotations

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
"""Secret in any directory, also among installed packages. `?` is one character."""

TOP_NAMES: Globs = ("auth.json",)
"""Secret at the top of the environment only (Composer's); elsewhere it is the name of many a translation."""

SECRET_WORDS: Globs = (
    "secret", "credential", "passwd", "password", "passphrase", "api_key", "api-key", "apikey", "access_key",
    "access-key", "accesskey", "private_key", "private-key", "privatekey", "auth_token", "auth-token",
)  # fmt: skip
"""A name with one of these words in it is secret where its ending is one of `DATA_ENDINGS`."""

DATA_ENDINGS: Globs = (
    "", "yml", "yaml", "json", "json5", "jsonc", "toml", "ini", "properties", "conf", "cfg", "config", "txt", "text",
    "xml", "csv", "tsv", "plist", "env", "sh", "b64", "base64", "dat", "data", "bin", "hex", "key", "list", "store",
    "tf", "hcl", "xlsx", "ods", "docx", "sql", "db",
)  # fmt: skip
"""Endings of data, as opposed to programs and documents; the first is none at all."""

SECRET_DIRECTORIES: Globs = (
    "secrets", ".secrets", ".secret", ".credentials", ".envs", ".ssh", ".gnupg", ".password-store", ".vault",
)  # fmt: skip
"""Everything below one of these is secret, but programs, documents and what is public by its name."""

PROGRAM_ENDINGS: Globs = (
    "py", "pyi", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "vue", "svelte", "go", "rs", "java", "kt", "kts",
    "scala", "groovy", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "mm", "swift", "cs", "fs", "vb", "rb", "php",
    "pl", "pm", "lua", "r", "jl", "ex", "exs", "erl", "hs", "ml", "clj", "cljs", "elm", "dart", "zig", "nim", "css",
    "scss", "sass", "less", "html", "htm", "md", "markdown", "rst", "adoc", "tex", "svg", "ipynb", "proto", "graphql",
    "map", "wasm",
)  # fmt: skip
"""Endings of programs and documents: a setting in them seals the file only where its value is long and random."""

PUBLIC_NAMES: Globs = (
    "readme", "readme.*", ".gitignore", ".gitkeep", ".keep", ".gitattributes", "known_hosts", "known_hosts.old",
    "authorized_keys", "pubring.*", "trustdb.gpg", "*.enc.*", "*.sops.*",
)  # fmt: skip
"""Neither a word nor a directory makes these secret: they are public, or encrypted already."""

KEY_FILES: Globs = ("*.pem", "*.key", "*.p8", "*.priv", "*.asc")
"""Secret only where the content says `PRIVATE KEY`: most of them are certificates."""

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
"""Taken off a name before it is judged, behind `.`, `-`, `_` or a space, also with a number, also before its ending."""

PACKAGE_DIRECTORIES: Globs = (
    "node_modules", "bower_components", "jspm_packages", "site-packages", "dist-packages", "vendor", "target",
    "pods", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pnpm-store", ".terraform",
    "go/pkg/mod", ".cargo/registry", ".rustup/toolchains", ".m2/repository", ".gradle/caches", ".npm/_cacache",
    ".yarn/cache", ".git/objects", ".git/lfs", "lib/python2.*", "lib/python3.*", "lib64/python3.*",
)  # fmt: skip
"""Directories of what was downloaded or derived: below them names are looked at, contents are not."""
