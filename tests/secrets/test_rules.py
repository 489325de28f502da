"""Secret names: the table and its exceptions, path by path."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.capture.capture_worker import secret_rules
from git_envhist.secrets import rules as secrettable
from git_envhist.secrets.rules import SecretRules, original_names

RULES = SecretRules()
DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "security.md"


def words(text: str) -> list[str]:
    return text.split()


SECRET = words("""
.env .env.local .env.production .env.test .env.local.bak .env-prod .env_staging .env~ .env.keys .ENV app/.env
deep/below/.env.development.local prod.env docker.env .envrc .dev.vars .Renviron .env.example.local
node_modules/pkg/.env .venv/lib/python3.11/site-packages/pkg/.env
secrets.yml config/secrets.json .streamlit/secrets.toml secret.yaml .secrets .secrets.baseline credentials.json
.credentials.json .claude/.credentials.json home/.aws/credentials .aws/credentials .cargo/credentials.toml
new_user_credentials.csv.env rootkey_accessKeys.csv client_secret_1234.apps.json config/master.key
config/credentials/production.key wp-config.php
.npmrc sub/.npmrc .pypirc .netrc _netrc .git-credentials .config/git/credentials .config/gh/hosts.yml
.config/glab-cli/config.yml auth.json .composer/auth.json .config/composer/auth.json .m2/settings.xml
.gradle/gradle.properties .sentryclirc
.aws/cli/cache/0a1b.json .aws/sso/cache/token.json .boto .s3cfg application_default_credentials.json
.config/gcloud/credentials.db .config/gcloud/legacy_credentials/me@example.com/adc.json service-account.json
service-account-prod.json my-service-account.json serviceAccountKey.json .azure/accessTokens.json
.azure/msal_token_cache.json .docker/config.json .dockercfg .dockerconfigjson kubeconfig kubeconfig.yaml
kubeconfig-prod prod.kubeconfig .kube/config .kube/config-staging rclone.conf ngrok.yml .kaggle/kaggle.json
.cache/huggingface/token .codex/auth.json
terraform.tfstate terraform.tfstate.backup prod.tfvars prod.auto.tfvars prod.tfvars.json .terraformrc .vault-token
.vault_pass .vault_pass.txt
.pgpass .my.cnf .htpasswd .dbt/profiles.yml
id_rsa .ssh/id_ed25519 id_rsa.bak id_ecdsa_sk ssh_host_rsa_key cert.p12 cert.pfx release.jks debug.keystore
key.ppk vault.kdbx .gnupg/private-keys-v1.d/ABCDEF.key
.flaskenv dotenv env.production env.old .envs/.production/.postgres app/.envs/.local/.django .yarnrc.yml NuGet.config
gradle.properties key.properties application-secrets.yml appsettings.Production.json local.settings.json
local_settings.py database.yml k8s/app-secret.yaml helm/secrets.prod.yaml secrets/db.txt secrets/tls tfplan
.viminfo .lesshst .ipython/profile_default/history.sqlite playwright/.auth/user.json .vscode/sftp.json
db_password.txt passwords.csv api-keys.json clientSecret.json .ssh/deploy wg0.conf session.har
.bash_history .zsh_history .psql_history .python_history .node_repl_history .local/share/fish/fish_history
""")

NOT_SECRET = words("""
.env.example .env.sample .env.template .env.dist .env.defaults .env.default .env.local.example .env-example
.env_sample .env.schema .env.d.ts example.env sample.env app.example.env .envhistignore .environment environment
env env.py env.js .envoy.yaml venv/bin/env kubeconfig.py kubeconfig.go kubeconfig.example.yaml
id_rsa.pub .ssh/id_ed25519.pub known_hosts config/config.json docker/config.json .docker/daemon.json
.kube/cache/x.json locales/en/auth.json src/auth.json hosts.yml ansible/hosts.yml gh/hosts.txt
secrets.py secrets.enc.yaml secrets.sops.json secret.py settings.xml profiles.yml
credentials.py credentials.yml.enc wp-config-sample.php credentials/index.ts token tokens.json package.json
certifi/cacert.pem server.pem tls.key cert.crt ca.pem .aws/config .gitconfig .gitignore node_modules/x/secretary.json
terraform.tfvars.example example.tfvars main.tf .terraform.lock.hcl history history.txt bash_history.md
secrets/index.ts secrets/README.md .ssh/known_hosts .ssh/id.pub node_modules/secrets/index.json chunk-023.js
node_modules/a/secrets/x.json app-1.2.3.json old.txt backup.txt a~ .eslintrc.json.bak readme copy.md .foo.swp
keystore.go keystore README.md app.db .cargo/config.toml .npmrc.example
""")


@pytest.mark.parametrize("path", SECRET)
def test_name_in_the_table_is_secret(path: str) -> None:
    assert RULES.by_name(path.encode())


@pytest.mark.parametrize("path", NOT_SECRET)
def test_similar_name_is_not_secret(path: str) -> None:
    assert not RULES.by_name(path.encode())


def test_every_glob_matches_at_any_depth_and_in_any_case() -> None:
    for globs in secrettable.SECRET_NAMES.values():
        for glob in globs:
            path = glob.replace("*", "x").replace("?", "1").encode()
            assert RULES.by_name(path)
            assert RULES.by_name(b"deep/below/" + path)
            assert RULES.by_name(path.upper())


@given(st.text(st.sampled_from("._-abekmnprstuv*/12"), min_size=1, max_size=30))
def test_compiled_matcher_agrees_with_single_globs(path: str) -> None:
    name = path.rpartition("/")[2]
    globs = [glob for group in secrettable.SECRET_NAMES.values() for glob in group]
    by_globs = any(fnmatch.fnmatchcase(name, glob) for glob in globs if "/" not in glob)
    matched = RULES.by_name(path.encode())
    if matched:
        assert by_globs or any("/" in glob for glob in globs) or secrettable.SECRET_WORDS
    elif by_globs:
        assert re.search(r"exampl|sampl|templ|tmpl|tpl|j2|dist|default|schema|\.pub$", name)


@given(st.binary(max_size=80))
def test_any_bytes_are_accepted_as_a_name(path: bytes) -> None:
    RULES.by_name(path)
    RULES.scans_content(path)


def test_newline_in_a_path_hides_no_secret_name() -> None:
    assert RULES.by_name(b"a\nb/.env")
    assert RULES.by_name(b"a\nb/.aws/credentials")
    assert RULES.by_name(b".env.a\nb")


COPIES = (
    """
#.env#|..env.swp|.env.swp|.env (copy)|.env (copy 2)|.env - Copy|.env copy|.env.old|.env.bak.old~|.#.env|.env.~1~
prod.tfvars~|release.jks.bak|release (2).keystore|secrets-backup.yml|secrets (1).yml|secrets.bak.yml|database.yml.orig
.database.yml.swp|.database.yml.un~|Copy of release.jks|Backup of .npmrc|credentials (1).json|id_rsa 2|id_rsa.2024-11-19
.npmrc.save.1|nuget.config.dpkg-old|.mylogin.cnf.rpmsave|key.properties___jb_tmp___|._key.properties|old-database.yml
.env.sync-conflict-20240101-123456-ABCDEFG|database (conflicted copy 2024-01-01).yml|database_BACKUP_123.yml
.netrc.a1B2c3|.database.yml.Xa1b2c|env.production.gz|release.jks.tar.gz|~$passwords.xlsx|.~lock.passwords.xlsx#|serviceAccountKey.json.bak
terraform.tfstate.1700000000.backup|playwright/.auth/user.json.bak|.gradle/gradle.properties.old|gh/hosts.yml~
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize("path", COPIES)
def test_copy_of_a_secret_file_is_secret_by_its_name(path: str) -> None:
    assert RULES.by_name(path.encode())
    assert RULES.by_name(b"deep/below/" + path.encode())


@given(st.binary(max_size=40).map(lambda name: name.replace(b"/", b"")))
def test_original_names_are_shorter_and_finite(name: bytes) -> None:
    found = list(original_names(name.lower()))
    assert len(found) < 200
    assert all(len(one) < len(name) for one in found)


def test_exclusion_wins_over_every_rule_and_the_last_pattern_decides() -> None:
    rules = secret_rules(("!.env.ci", "*.dat", "!public/*", "public/private.dat", "!config/*.yml"))
    assert rules.by_name(b".env")
    assert not rules.by_name(b".env.ci")
    assert not rules.by_name(b"deep/.env.ci")
    assert rules.by_name(b"a.dat")
    assert not rules.by_name(b"public/a.dat")
    assert rules.by_name(b"public/private.dat")
    token = b"token: ghp_" + b"a1B2c3D4e5" * 4
    assert rules.by_content(b"a.yml", token)
    assert not rules.by_content(b"config/a.yml", token)


def test_user_patterns_extend_the_table() -> None:
    rules = SecretRules(lambda path: path.startswith(b"private/"))
    assert rules.by_name(b"private/notes.txt")
    assert rules.by_name(b".env")
    assert not rules.by_name(b"notes.txt")


@pytest.mark.parametrize(
    "directory",
    ["node_modules", "a/node_modules/b/c", ".venv/lib/python3.11/site-packages", "x/dist-packages/y", "vendor/bundle",
     "target/debug", "sub/.git/objects/ab", ".tox/py311", "conda/lib/python3.12/test", "src/__pycache__", "ios/Pods/A"],
)  # fmt: skip
def test_contents_of_packages_are_not_searched(directory: str) -> None:
    assert not RULES.scans_content(directory.encode())


@pytest.mark.parametrize(
    "directory",
    ["", "src", "dist", "build", ".git", "sub/.git", "targets", "my_node_modules", "vendors", ".venv", "lib"],
)
def test_contents_outside_packages_are_searched(directory: str) -> None:
    assert RULES.scans_content(directory.encode())


def test_no_file_of_the_standard_library_has_a_secret_name() -> None:
    for directory, _, names in os.walk(os.path.dirname(os.__file__)):
        if "site-packages" not in directory:
            assert not [name for name in names if RULES.by_name(os.fsencode(name))], directory


def listed(heading: str) -> set[str]:
    """Return the names in backquotes in one section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.split(f"\n### {heading}\n")[1].split("\n#")[0]
    return set(re.findall(r"`([^`]+)`", section))


def test_document_lists_exactly_the_secret_names() -> None:
    globs = {glob for group in secrettable.SECRET_NAMES.values() for glob in group}
    assert listed("By name") == globs | {"*", "?"}
    assert listed("By a word in the name") == set(secrettable.SECRET_WORDS)
    assert listed("Endings of data") == set(secrettable.DATA_ENDINGS) - {""}
    assert listed("By directory") == {*secrettable.SECRET_DIRECTORIES, ".py", ".md"}
    assert listed("Names that are public") == set(secrettable.PUBLIC_NAMES)
    assert set(secrettable.COPY_ENDINGS) <= listed("Copies")
    assert listed("By name, at the top only") == set(secrettable.TOP_NAMES)
    assert listed("By name, where they hold a private key") == {*secrettable.KEY_FILES, "PRIVATE KEY"}
    assert listed("Names that are examples") == set(secrettable.EXAMPLE_WORDS)
    assert listed("Directories whose contents are not searched") == set(secrettable.unsearched_directories())
