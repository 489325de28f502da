"""Which names are secret: the table and its exceptions, path by path."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.capture import secretnames
from git_envhist.capture.secrets import SecretRules

RULES = SecretRules()
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


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
.bash_history .zsh_history .psql_history .python_history .node_repl_history .local/share/fish/fish_history
""")

NOT_SECRET = words("""
.env.example .env.sample .env.template .env.dist .env.defaults .env.default .env.local.example .env-example
.env_sample .env.schema .env.d.ts example.env sample.env app.example.env .envhistignore .environment environment
env env.py env.js .envoy.yaml .flaskenv venv/bin/env kubeconfig.py kubeconfig.go kubeconfig.example.yaml
id_rsa.pub .ssh/id_ed25519.pub known_hosts config/config.json docker/config.json .docker/daemon.json
.kube/cache/x.json locales/en/auth.json src/auth.json hosts.yml ansible/hosts.yml gh/hosts.txt
secrets.py secrets.enc.yaml secrets.sops.json secret.py settings.xml gradle.properties profiles.yml
credentials.py credentials.yml.enc wp-config-sample.php credentials/index.ts token tokens.json package.json
certifi/cacert.pem server.pem tls.key cert.crt ca.pem .aws/config .gitconfig .gitignore .yarnrc.yml
terraform.tfvars.example example.tfvars main.tf .terraform.lock.hcl history history.txt bash_history.md
keystore.go keystore README.md app.db .cargo/config.toml .npmrc.example
""")


@pytest.mark.parametrize("path", SECRET)
def test_a_name_of_the_table_is_secret(path: str) -> None:
    assert RULES.by_name(path.encode())


@pytest.mark.parametrize("path", NOT_SECRET)
def test_a_name_that_only_looks_like_one_is_not(path: str) -> None:
    assert not RULES.by_name(path.encode())


def test_every_glob_of_the_table_is_matched_at_the_top_and_below_in_any_case() -> None:
    for globs in secretnames.SECRET_NAMES.values():
        for glob in globs:
            path = glob.replace("*", "x").encode()
            assert RULES.by_name(path)
            assert RULES.by_name(b"deep/below/" + path)
            assert RULES.by_name(path.upper())


@given(st.text(st.sampled_from("._-abekmnprstuv*/12"), min_size=1, max_size=30))
def test_the_fast_matcher_agrees_with_the_globs_one_by_one(path: str) -> None:
    name = path.rpartition("/")[2]
    globs = [glob for group in secretnames.SECRET_NAMES.values() for glob in group]
    by_globs = any(fnmatch.fnmatchcase(name, glob) for glob in globs if "/" not in glob)
    matched = RULES.by_name(path.encode())
    if matched:
        assert by_globs or any("/" in glob for glob in globs)
    elif by_globs:
        assert re.search(r"exampl|sampl|templ|tmpl|tpl|j2|dist|default|schema|\.pub$", name)


@given(st.binary(max_size=80))
def test_no_name_is_too_odd_to_be_judged(path: bytes) -> None:
    RULES.by_name(path)
    RULES.scans_content(path)


def test_a_newline_in_a_path_hides_nothing() -> None:
    assert RULES.by_name(b"a\nb/.env")
    assert RULES.by_name(b"a\nb/.aws/credentials")
    assert RULES.by_name(b".env.a\nb")


def test_the_users_patterns_come_on_top() -> None:
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
def test_contents_of_ones_own_are_searched(directory: str) -> None:
    assert RULES.scans_content(directory.encode())


def test_no_file_of_the_standard_library_has_a_secret_name() -> None:
    for directory, _, names in os.walk(os.path.dirname(os.__file__)):
        if "site-packages" not in directory:
            assert not [name for name in names if RULES.by_name(os.fsencode(name))], directory


def listed(heading: str) -> set[str]:
    """What stands in backquotes in one section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.split(f"\n### {heading}\n")[1].split("\n#")[0]
    return set(re.findall(r"`([^`]+)`", section))


def test_the_document_lists_exactly_the_names_that_are_sealed() -> None:
    globs = {glob for group in secretnames.SECRET_NAMES.values() for glob in group}
    assert listed("By name") == globs
    assert listed("By name, at the top only") == set(secretnames.TOP_NAMES)
    assert listed("By name, where they hold a private key") == {*secretnames.KEY_FILES, "PRIVATE KEY"}
    assert listed("Names that are examples") == set(secretnames.EXAMPLE_WORDS)
    assert listed("Directories whose contents are not searched") == set(secretnames.PACKAGE_DIRECTORIES)
